"""Start vLLM's engine core in a child process with environment variables of its own, such as the GPUs that it sees.

The start has two steps, so that several cores can load their weights at the same time: first all processes are
started; then each is waited for, in a thread, and gets its client.

The first core of a process is forked from it, before it has threads. Those that replace a dead one are forked from a
fork server, which has imported vLLM meanwhile: a new interpreter would take as long for that as the core for the rest.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import structlog

from twopass.engines.vllm import plugin
from twopass.runtime import gc_tuning
from twopass.runtime.parent_death import end_with_parent

log = structlog.get_logger()

# The environment belongs to the whole process, and two dead cores may start again at the same moment.
_environment_lock = threading.Lock()


class CoreProcess:
    """A core that is starting. It is stopped with `stop` until it has its client, and through the client after that."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        variables: Mapping[str, str],
        adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda arguments: arguments,
    ) -> None:
        """Start the process, which alone gets `variables`. `adapt` may change the arguments once vLLM is imported."""
        self.stage_ends: dict[str, float] = {"plan_s": time.monotonic()}
        _import_vllm()
        plugin.register_class(Path(arguments["model"]))
        self._end_stage("imports_s")
        arguments = adapt(arguments)
        self._end_stage("cache_s")
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.transformers_utils.config import maybe_register_config_serialize_by_value
        from vllm.usage.usage_lib import UsageContext
        from vllm.utils.network_utils import get_open_zmq_ipc_path
        from vllm.v1.engine.utils import EngineZmqAddresses, launch_core_engines
        from vllm.v1.executor import Executor

        maybe_register_config_serialize_by_value()  # as AsyncLLM does before it starts a core
        with set_variables(variables):
            engine_arguments = AsyncEngineArgs(**arguments)
            self._config = engine_arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
            self._end_stage("configuration_s")
            self._executor = Executor.get_class(self._config)
            self._log_stats = not engine_arguments.disable_log_stats
            addresses = EngineZmqAddresses([get_open_zmq_ipc_path()], [get_open_zmq_ipc_path()])

            def launch() -> Any:
                self._startup = launch_core_engines(self._config, self._executor, self._log_stats, addresses)
                return self._startup.__enter__()

            launched = _fork_server.launch(launch)
            self._processes, self._addresses = launched.engine_manager, launched.addresses

    def wait(self) -> None:
        """Wait until the core has loaded its model, in any thread; raises vLLM's error if it ends before."""
        self._startup.__exit__(None, None, None)
        self._end_stage("core_s")

    def connect(self) -> Any:
        """The core's AsyncLLM, once `wait` has returned."""
        from vllm.v1.engine.async_llm import AsyncLLM

        addresses = {"input_address": self._addresses.inputs[0], "output_address": self._addresses.outputs[0]}
        client = AsyncLLM(self._config, self._executor, self._log_stats, client_addresses=addresses)
        # From here on, the client notices the end of the process and ends it, as if it had started it itself.
        client.engine_core.resources.engine_manager = self._processes
        client.engine_core.start_engine_core_monitor()
        self._end_stage("client_s")
        return client

    def stop(self) -> None:
        """End the process, whether it is still starting or not."""
        self._processes.shutdown()

    def _end_stage(self, name: str) -> None:
        self.stage_ends[name] = time.monotonic()


def _import_vllm() -> None:
    """Import what starts a core, and turn the plugin on."""
    # A restart finds everything imported, and must not freeze the objects of pages in flight.
    with nullcontext() if "vllm.v1.engine.async_llm" in sys.modules else gc_tuning.freeze_imports():
        import vllm.v1.engine.async_llm  # noqa: F401

    plugin.activate()


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the context lasts; others who set some wait."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


# ---- the fork server ----------------------------------------------------------------------------

_IMPORTED = (
    "vllm.v1.engine.async_llm", "vllm.v1.engine.core", "vllm.v1.executor.uniproc_executor",
    "twopass.engines.vllm.core_process", "twopass.engines.vllm.plugin.scheduler", "twopass.engines.vllm.plugin.worker",
)  # fmt: skip
_IMPORTED_ON_GPUS = ("vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.gpu.warmup")


class _ForkedCore(ForkServerProcess):
    """A core with the environment that this process had when it was made. That of the fork server is older."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._environment = dict(os.environ)

    def run(self) -> None:
        # Without the server, the process that asked for this core takes it for dead, and cannot end it.
        end_with_parent(os.getppid())
        gc.freeze()  # what the server has imported, which it shares with this process
        with suppress(ImportError):
            from setproctitle import getproctitle

            getproctitle()  # it finds its place by the environment as it was; later, vLLM could not name the process
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class _CoreContext(ForkServerContext):
    """What vLLM asks for the class of its processes."""

    Process = _ForkedCore


class _ForkServer:
    """Python's fork server, of which a process has one, for all cores. It ends with this process."""

    def __init__(self) -> None:
        self._is_started = False

    def start(self, modules: Sequence[str]) -> None:
        """Start it; returns before it has imported the modules. A core that is started before waits for them."""
        _CoreContext().set_forkserver_preload(list(modules))
        forkserver.ensure_running()
        self._is_started = True

    def launch(self, launch: Callable[[], Any]) -> Any:
        """Call the function, whose processes are forked from the server; without one, or if it fails, as vLLM does."""
        if not self._is_started:
            return launch()
        try:
            with self._replace_context():
                return launch()
        except (EOFError, ConnectionError) as error:  # it could not import what it should, or was killed
            self._is_started = False
            log.warning("cores are started without the fork server", reason=f"{type(error).__name__}: {error}")
            return launch()

    @contextmanager
    def _replace_context(self) -> Iterator[None]:
        from vllm.v1.engine import utils

        with ExitStack() as stack:
            stack.callback(setattr, utils, "get_mp_context", utils.get_mp_context)
            utils.get_mp_context = _CoreContext
            yield


_fork_server = _ForkServer()


def prepare_restarts(model: str, has_gpu: bool) -> None:
    """Start the fork server: it takes a processor for as long as vLLM's imports, and a gigabyte of memory."""
    _, path = plugin.CLASSES[model]
    _fork_server.start([*_IMPORTED, *(_IMPORTED_ON_GPUS if has_gpu else ()), path.partition(":")[0]])
