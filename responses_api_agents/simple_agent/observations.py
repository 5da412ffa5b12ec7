# SPDX-License-Identifier: Apache-2.0
"""What an agent of this family tells of a rollout when `observability_enabled` is on: who called what, and how long.

The model calls themselves are captured by the model servers; here they are only referred to.
"""

import time
from collections.abc import Sequence
from typing import Any

from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseFunctionToolCall
from nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ModelCallRef,
    ToolCallObservation,
    TrajectoryRecord,
    TrajectoryTurn,
)


class RolloutNotes:
    """Takes notes of one rollout while it is played."""

    def __init__(self, source: str, task_id: str, rollout_id: str) -> None:
        self._source = source
        self._task_id = task_id
        self._rollout_id = rollout_id
        self._started_at = time.time()
        self._started = time.perf_counter()
        self._model_calls: list[ModelCallRef] = []
        self._tool_calls: list[ToolCallObservation] = []

    def note_model_call(self, model_ref: ModelServerRef, reply: NeMoGymResponse) -> None:
        """Note that `reply` came from the model server `model_ref`."""
        self._model_calls.append(ModelCallRef(model_ref=model_ref, response_id=reply.id))

    def note_tool_call(
        self, call: NeMoGymResponseFunctionToolCall, started_at: float, duration_s: float, error_type: str | None
    ) -> None:
        """Note one tool call that has been answered."""
        self._tool_calls.append(
            ToolCallObservation(
                invocation_id=self._rollout_id,
                tool_call_id=call.call_id,
                tool_name=call.name,
                started_at=started_at,
                completed_at=started_at + duration_s,
                duration_ms=duration_s * 1000,
                timing_source="executor",
                status="failed" if error_type else "completed",
                error_type=error_type,
            )
        )

    def as_row_fields(self, asked: Sequence[Any], answer: NeMoGymResponse) -> dict[str, Any]:
        """Return what the result row of the rollout holds of these notes."""
        invocation = AgentInvocation(
            invocation_id=self._rollout_id,
            status="incomplete" if answer.incomplete_details is not None else "completed",
            duration_ms=(time.perf_counter() - self._started) * 1000,
            model_calls=self._model_calls,
            conversation=[*asked, *answer.output],
        )
        turn = TrajectoryTurn(
            invocation_id=self._rollout_id,
            task_id=self._task_id,
            rollout_id=self._rollout_id,
            turn_no=1,
            timestamp=self._started_at,
            question=_last_question(asked),
            answer=answer.output_text,
            step_count=len(self._model_calls),
            model_calls=self._model_calls,
        )
        bundle = AgentObservationBundle(source=self._source, records=[invocation, *self._tool_calls])
        trajectory = TrajectoryRecord(task_id=self._task_id, rollout_id=self._rollout_id, turns=[turn])
        return {
            "ng_agent_observations": bundle.model_dump(mode="json"),
            "ng_trajectory": trajectory.model_dump(mode="json"),
        }


def _last_question(asked: Sequence[Any]) -> Any:
    """Return the content of the last message of the user."""
    return next((item.content for item in reversed(asked) if getattr(item, "role", None) == "user"), None)
