# SPDX-License-Identifier: Apache-2.0
"""Every error this package raises on purpose.

    GymError                          something the user can act on; printed without a traceback
    ├── ConfigError                   a config cannot be used as it is
    │   ├── ConfigPathNotFoundError   (FileNotFoundError)  a config file that is in no search root
    │   ├── MalformedConfigPathsError (ValueError)         `config_paths` is not a list of strings
    │   ├── NoServerInstancesError    (ValueError)         nothing to start
    │   ├── ConfigMissingValuesError  (ValueError)         `???` left over
    │   ├── ConfigInterpolationError  (ValueError)         `${...}` that leads nowhere or in circles
    │   ├── ServerRefNotFoundError    (ValueError)         a reference to a server that no config defines
    │   ├── InheritPathNotFoundError  (ValueError)         `_inherit_from` / `_copy` of something that is not there
    │   ├── AlmostServerError         (ValueError)         a block that was meant as a server but does not validate
    │   ├── UnknownServerError        (KeyError)           a call to a server that the config does not have
    │   ├── PromptError, SkillError   (ValueError)         in `nemo_gym.prompt`, `nemo_gym.skills`
    │   │   └── PromptFieldError      (KeyError)           a field that a prompt asks for and a row lacks
    │   ├── CommandLineError                               overrides without effect, settings missing or wrong
    │   └── ConfigProblems            (ValueError)         several of the above at once
    ├── JsonlError                    (ValueError)         a row that is not JSON, with file and line; `_util.jsonl`
    ├── InvalidModelReply                                  a model's reply that is not valid; `_wire.schema.errors`
    ├── UnknownSession                (KeyError)           no state for a session; `nemo_gym.session_store`
    ├── SandboxError                  (RuntimeError)       in `nemo_gym.sandbox`
    ├── ServerDied, ServerLate        (RuntimeError)       a server that ended or was late; `_servers.processes`
    ├── DataFileError, OffendingRows, MissingDatasets      datasets that cannot be read, used or found; `_data`
    ├── MetricsConflict, MetricsFileError, CannotFetch     their metrics files and registries; `_data`
    ├── HubError                                           the Hugging Face Hub said no; `_data.hub`
    ├── GitlabError, DamagedFile                           a model registry refused or is not there; `_data.gitlab_api`
    ├── PrepareError                                       a benchmark that cannot be prepared; `_authoring`
    ├── BadName (ValueError), ScaffoldError                a new server that cannot be made; `_authoring`
    ├── UsageError                                         a command line that is wrong; `nemo_gym.cli.flags`
    ├── DryRunFailed                                       servers that would not start; `nemo_gym.cli.env.run_helper`
    ├── InputError, BadRows           (ValueError)         tasks that cannot be read or run; `_rollouts`
    ├── RunFileError, ResumeError                          the files of a run; `_rollouts`
    ├── PolicyVersionRefused (ValueError), PolicyVersionError  a version that goes back, or reached not all servers
    ├── SessionRefused                                     a session that ended, is unknown or has no room
    ├── StalenessTimeout              (TimeoutError)       no new policy version came; `nemo_gym.policy_versions`
    ├── ResultsError                  (ValueError)         rollouts that cannot be aggregated; `_results.metrics`
    ├── VenvBuildError, InstallerFailed, ProgramInstallError  what a server or program needs; `_servers.installing`
    ├── PortInUseError                (OSError)            the port a server was given is taken
    ├── NoHeadServerError             (ValueError)         no head server answers where one should
    ├── RayUnavailable                                     no Ray, or no cluster of it; `nemo_gym._servers.ray.cluster`
    ├── ProfilingToolMissing          (ModuleNotFoundError) a library that profiling needs; `nemo_gym.profiling`
    ├── HandlerExit                                        a server's code tried to end the process or to cancel itself
    ├── LiveGymError                                       a trainer cannot run here; `nemo_gym.integrations.live`
    ├── EpisodeError                                       an episode cannot go on; `nemo_gym.integrations.episodes`
    ├── MissingLibrary                (ImportError)        a trainer's library; `nemo_gym.integrations.libraries`
    ├── UnknownEnvironment                                 one that is not installed; `adapters.installed_packages`
    ├── NoTokenRollout                                     a model call of no open rollout; `nemo_gym.token_engine`
    ├── JudgeError                                         a judge model gave no verdict
    ├── CannotTrain, WorkerFailed                          rollouts that a trainer cannot use; `nemo_gym.integrations`
    ├── RolloutFailure                                     a rollout that ended without a reward
    │   ├── ToolCrashed                                    a tool's server error that is to count as one
    │   ├── SessionLost                                    the replica that held the session of a rollout is gone
    │   └── SandboxLost                                    code whose sandbox was killed; `nemo_gym.code_execution`
    └── ServerCallError                                    a call to a server or endpoint did not succeed; its aiohttp
                                                           flavors live in `nemo_gym._transport.call_errors`

And one that is not an Exception, because code that catches all exceptions must not turn it into a score:

    ServerBlocked                     code of a server was interrupted because it blocked the event loop

Constructor arguments equal `args` everywhere, so that all of them survive pickling.
"""

from collections.abc import Sequence


class GymError(Exception):
    """Something the user can act on: what happened, what we know, what to do."""


class ConfigError(GymError):
    """A config cannot be used as it is."""


class ConfigPathNotFoundError(ConfigError, FileNotFoundError):
    """A config file was found in none of the search roots."""


class MalformedConfigPathsError(ConfigError, ValueError):
    """`config_paths` is not a list of strings."""


class NoServerInstancesError(ConfigError, ValueError):
    """The config defines no server, so there is nothing to start."""


class ConfigMissingValuesError(ConfigError, ValueError):
    """Mandatory values (`???`) were never given."""


class ConfigInterpolationError(ConfigError, ValueError):
    """An interpolation leads nowhere or in circles."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A server refers to another that no loaded config defines."""


class InheritPathNotFoundError(ConfigError, ValueError):
    """`_inherit_from` or `_copy` names a path that is not there."""


class AlmostServerError(ConfigError, ValueError):
    """A block looks like a server but does not validate as one."""


class UnknownServerError(ConfigError, KeyError):
    """A server was asked for by a name that the config does not have."""

    __str__ = Exception.__str__  # a KeyError shows the repr of its message


class CommandLineError(ConfigError):
    """The command line has an override that nothing reads, or lacks a setting that its command needs."""


class ConfigProblems(ConfigError, ValueError):
    """Several different problems of one config, reported together."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        listed = "\n\n".join(f"[{number}] {problem}" for number, problem in enumerate(self.problems, 1))
        return f"the config has {len(self.problems)} problems:\n\n{listed}"


class PortInUseError(GymError, OSError):
    """The port that a server was given is taken by another process."""


class NoHeadServerError(GymError, ValueError):
    """No head server answers where one should, so it is unknown which servers run."""


class HandlerExit(GymError):
    """Code of a server raised SystemExit, KeyboardInterrupt or CancelledError: that ends its call, not the process."""

    def __init__(self, raised: str) -> None:
        super().__init__(raised)
        self.raised = raised

    def __str__(self) -> str:
        return f"the server's code raised {self.raised}, which ended this call without a result"


class JudgeError(GymError):
    """A judge model could not be reached or gave no usable verdict: the answer was not judged, which is not a zero."""


class RolloutFailure(GymError):
    """A rollout that ended without a reward."""

    def __init__(self, kind: str, message: str, retryable: bool = False) -> None:
        super().__init__(kind, message, retryable)
        self.kind = kind
        self.message = message
        self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class ToolCrashed(RolloutFailure):
    """A tool answered with a server error, and the run or its agent counts that as a failure.

    Not retryable: most crashes are bugs, which would hit the next attempt too. `--resume` runs the rollout again.
    """

    def __init__(self, tool: str, status: int, message: str) -> None:
        super().__init__("tool_crashed", f"the tool {tool!r} answered {status}: {message}")
        self.args = (tool, status, message)
        self.path = f"/{tool}"


class SessionLost(RolloutFailure):
    """The replica of a server that held a session is gone, and the session's state with it: run the rollout again."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__("session_lost", f"server {server!r} has lost the session of this rollout: {reason}", True)
        self.args = (server, reason)


class ServerCallError(GymError):
    """A call to a server or a model endpoint did not succeed."""


class ServerBlocked(BaseException):
    """Raised into the code of a server that has blocked the event loop of the run for too long."""

    def __init__(self, server: str, place: str, seconds: float) -> None:
        super().__init__(server, place, seconds)
        self.server = server
        self.place = place
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"server {self.server!r} blocked the event loop for {self.seconds:g} s and was interrupted, in {self.place}"
        )
