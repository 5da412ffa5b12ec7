# SPDX-License-Identifier: Apache-2.0
"""Turns are joined into sequences without tokenizing anything: what the engine wrote is what is trained on."""

from hypothesis import given, strategies as st

from nemo_gym._training.alignment import Turn, classify, count_common_prefix, find_same_text, join_turns

# Letters are tokens, and so are pairs of the same letter: "aa" has two spellings.
LETTERS = dict(enumerate("abcd"))
TEXTS = LETTERS | {number + 10: 2 * letter for number, letter in LETTERS.items()}


def decode(ids):
    return "".join(TEXTS[one] for one in ids)


def turn(prompt_ids, generated_ids):
    return Turn(list(prompt_ids), list(generated_ids), [-0.5] * len(generated_ids), "response")


def spell_otherwise(ids):
    """The same text, in single letters."""
    return [one % 10 for one in ids for _ in range(1 + one // 10)]


def test_a_prompt_that_begins_with_everything_so_far_continues_it_cleanly():
    branches = join_turns([turn([0, 1], [2, 3]), turn([0, 1, 2, 3, 0], [1])])
    assert classify(branches) == "clean"
    [branch] = branches
    assert (branch.prompt_ids, branch.completion_ids) == ([0, 1], [2, 3, 0, 1])
    assert branch.mask == [1, 1, 0, 1]
    assert branch.log_probs == [-0.5, -0.5, 0.0, -0.5]


def test_a_history_with_the_same_text_gets_the_generated_ids_back():
    branches = join_turns([turn([0], [11, 2]), turn([0, 1, 1, 2, 3], [0])], decode)
    assert classify(branches) == "realigned"
    assert branches[0].completion_ids == [11, 2, 3, 0]
    assert branches[0].mask == [1, 1, 0, 1]
    assert branches[0].realigned_turns == [1]


def test_without_a_decoder_the_same_history_is_a_fork_since_nobody_can_tell():
    branches = join_turns([turn([0], [11, 2]), turn([0, 1, 1, 2, 3], [0])])
    assert classify(branches) == "forked"
    assert [branch.turns for branch in branches] == [[0], [1]]
    assert branches[1].prompt_ids == [0, 1, 1, 2, 3]
    assert (branches[1].parent, branches[1].shared_ids) == (0, 1)


def test_an_edited_history_is_a_fork_and_both_branches_are_kept():
    branches = join_turns([turn([0], [1, 2]), turn([0, 1, 3], [2])], decode)
    assert classify(branches) == "forked"
    assert [branch.completion_ids for branch in branches] == [[1, 2], [2]]


def test_a_token_across_the_end_of_what_was_said_cannot_be_divided():
    assert find_same_text([0, 1], [0, 11, 2], decode) is None


def test_what_was_read_before_is_not_decoded_again():
    history, turns, lengths = [0], [], []
    for _ in range(30):
        turns.append(turn(spell_otherwise(history), [11, 12, 13]))
        history = [*history, 11, 12, 13, *[0, 1] * 10]

    def decode_and_note(ids):
        lengths.append(len(ids))
        return decode(ids)

    assert classify(join_turns(turns, decode_and_note)) == "realigned"
    assert max(lengths) < len(turns[-1].prompt_ids) / 10


def test_histories_that_differ_are_told_apart_at_a_glance():
    decoded = []
    turns = [turn([0, 1] + [number] * 500, [2]) for number in range(4)]
    branches = join_turns(turns, lambda ids: decoded.append(len(ids)) or decode(ids))
    assert len(branches) == 4
    assert max(decoded) <= 64


# One token a byte, and one for a whole word with its space, which is dropped at the beginning of a text.
BYTES = dict(enumerate(bytes([one]) for one in range(256))) | {300: " é".encode(), 301: "é".encode()}


def decode_bytes(ids):
    return b"".join(BYTES[one] for one in ids).decode(errors="replace").removeprefix(" ")


def test_a_character_in_several_tokens_is_compared_as_a_whole():
    history, said = list(b"a\xc3\xa9"), list(b"b")
    assert find_same_text([97, 301], history + said, decode_bytes) == 3
    assert find_same_text(history, [97, 301, *said], decode_bytes) == 2
    assert find_same_text([97, 301, 98], [*history, *said], decode_bytes) == 4


def test_bytes_that_are_no_text_are_not_taken_for_each_other():
    assert decode_bytes([97, 0xC3]) == decode_bytes([97, 0xE9])
    assert find_same_text([97, 0xC3], [97, 0xE9, 98], decode_bytes) is None


def test_a_space_that_a_tokenizer_drops_at_the_beginning_still_counts():
    assert decode_bytes([300]) == decode_bytes([301])
    assert find_same_text([97, 300], [97, 301, 98], decode_bytes) is None


def test_the_longest_branch_that_fits_is_continued():
    branches = join_turns([turn([0], [1]), turn([0], [2]), turn([0, 1, 3], [3]), turn([0, 2, 3], [0])])
    assert [branch.turns for branch in branches] == [[0, 2], [1, 3]]


def test_a_rollout_without_tokens_has_no_drift():
    assert classify(join_turns([])) is None


ids = st.lists(st.sampled_from(sorted(TEXTS)), max_size=6)


@given(first=ids, second=ids)
def test_the_common_prefix_is_the_one_that_a_loop_finds(first, second):
    expected = 0
    while expected < min(len(first), len(second)) and first[expected] == second[expected]:
        expected += 1
    assert count_common_prefix(first, second) == expected


@given(st.lists(st.tuples(ids, ids), max_size=6))
def test_every_turn_is_in_one_branch_and_every_generated_token_is_trained_on_once(parts):
    turns = [turn(prompt_ids, generated_ids) for prompt_ids, generated_ids in parts]
    branches = join_turns(turns, decode)
    assert sorted(number for branch in branches for number in branch.turns) == list(range(len(turns)))
    for branch in branches:
        assert len(branch.completion_ids) == len(branch.mask) == len(branch.log_probs)
        trained = [one for one, wrote in zip(branch.completion_ids, branch.mask, strict=True) if wrote]
        assert trained == [one for number in branch.turns for one in turns[number].generated_ids]


@given(start=ids, parts=st.lists(st.tuples(ids, ids), min_size=1, max_size=4), respell=st.booleans())
def test_a_conversation_whose_text_only_grows_is_never_forked(start, parts, respell):
    """What the environment says begins with a letter of its own, so that no token spans the border."""
    history, turns = list(start), []
    for generated_ids, said in parts:
        turns.append(turn(spell_otherwise(history) if respell else history, generated_ids))
        history = history + generated_ids + said
    branches = join_turns(turns, decode)
    assert classify(branches) in ("clean", "realigned")
    assert decode(branches[0].ids) == decode(turns[-1].prompt_ids + turns[-1].generated_ids)
