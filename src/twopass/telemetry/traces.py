"""OpenTelemetry spans of jobs, their pages and their stages.

OpenTelemetry's own environment variables configure the export: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from twopass.errors import Code, EngineError, advise_install
from twopass.result import Result


class Traces:
    """An observer that makes spans. The exporter's thread starts with the first job, after an engine's forks."""

    def __init__(self, exporter: Any | None = None) -> None:
        """`exporter` is for tests; the default exports over OTLP. Raises EngineError if the extra is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            message = f"OTEL_EXPORTER_OTLP_ENDPOINT is set and {error.name} is missing: {advise_install('otel')}"
            raise EngineError(Code.PLATFORM, message) from error
        self._exporter = exporter or OTLPSpanExporter

    @cached_property
    def _provider(self) -> Any:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "twopass"}))
        provider.add_span_processor(BatchSpanProcessor(self._exporter()))
        return provider

    def close(self) -> None:
        """Export the remaining spans."""
        if "_provider" in self.__dict__:
            self._provider.shutdown()

    def job(self, job_id: str) -> AbstractContextManager[None]:
        return self._span("job", {"twopass.job": job_id})

    def page(self, number: int) -> AbstractContextManager[None]:
        return self._span("page", {"twopass.page": number})

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self._span(name, {})

    @contextmanager
    def _span(self, name: str, attributes: dict[str, Any]) -> Iterator[None]:
        with self._provider.get_tracer("twopass").start_as_current_span(name, attributes=attributes):
            yield

    def job_ended(self, result: Result) -> None:
        """Nothing to add: the spans are recorded already."""

    def job_refused(self, code: Code) -> None:
        """The job's span has recorded the exception."""
