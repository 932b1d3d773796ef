"""Requests that arrive together are worked on together: what came while the last batch was computed is the next."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from itocast.serve.limits import Limits, Refused

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")
MOST = 64  # requests of a batch


@dataclass
class Job(Generic[Ask, Answer]):
    """A request and where its answer goes."""

    ask: Ask
    answer: asyncio.Future[Answer | Refused]


class Batcher(Generic[Ask, Answer]):
    """One thread that answers; nobody waits for company, and a thread of the server's loop is never held up."""

    def __init__(self, work: Callable[[list[Ask]], list[Answer | Refused]], limits: Limits, most: int = MOST) -> None:
        self.work, self.limits, self.most = work, limits, most
        self.jobs: queue.SimpleQueue[Job[Ask, Answer] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="itocast-work", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self.loop = asyncio.get_running_loop()
        self.thread.start()

    async def stop(self) -> None:
        """Answer what is there, and end."""
        self.jobs.put(None)
        await asyncio.to_thread(self.thread.join)

    @property
    def waiting(self) -> int:
        """How many requests have not been begun."""
        return self.jobs.qsize()

    async def ask(self, ask: Ask) -> Answer:
        """The answer to a request, or its refusal: at once if too many wait, later if it takes too long."""
        if self.waiting >= self.limits.waiting:
            raise Refused(503, f"{self.waiting:,} requests are waiting: try again later", {"Retry-After": "1"})
        job: Job[Ask, Answer] = Job(ask, self.loop.create_future())
        self.jobs.put(job)
        try:
            answer = await asyncio.wait_for(job.answer, self.limits.seconds)
        except TimeoutError:
            raise Refused(
                504, f"no answer within {self.limits.seconds:g} s: send fewer rows, or try again later"
            ) from None
        if isinstance(answer, Refused):
            raise answer
        return answer

    def _run(self) -> None:
        going = True
        while going:
            batch = [self.jobs.get()]
            while len(batch) < self.most and not self.jobs.empty():
                batch.append(self.jobs.get())
            going = None not in batch
            wanted = [job for job in batch if job is not None and not job.answer.cancelled()]
            if wanted:
                answers = self.work([job.ask for job in wanted])
                self.loop.call_soon_threadsafe(_deliver, wanted, answers)


def _deliver(jobs: list[Job[Ask, Answer]], answers: list[Answer | Refused]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        if not job.answer.done():
            job.answer.set_result(answer)
