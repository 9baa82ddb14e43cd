"""Tokens from a collection's issuer: each request is in the outbox before it is sent.

The issuer sees a ticket, and a blinded request, which is uniform whatever token results. It learns
who takes part, and when the token was asked for; so a report should be sent some time later, which
is what the `delay` of a collection does.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from metricshuffle.collection.admission_tokens import (
    REQUEST_MEDIA_TYPE,
    RESPONSE_MEDIA_TYPE,
    TokenRejected,
    TokenRequest,
    TokenVerifier,
)
from metricshuffle.collection.blind_signatures import MODULUS_BYTES, SignatureRejected
from metricshuffle.collection.client.http_client import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    NO_RETRY,
    RETRY_STATUSES,
    SPENT_TICKET,
    UNKNOWN_TICKET,
    SubmissionResult,
    is_untrusted_certificate,
    open_connection,
    retry_after_seconds,
    run_all,
    unreachable_text,
)
from metricshuffle.collection.client.outbox import Outbox, PendingToken
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import PlanError

if TYPE_CHECKING:
    import httpx

SIGNED = 200
USED_MEANWHILE = SubmissionResult(
    "waiting", "Another process used this person's token at the same moment; try again."
)


class TokenAsker:
    """Asks the issuer of a collection, or of the parts of a split, for tokens."""

    def __init__(
        self, parts: Mapping[str, Collection], outbox: Outbox, patience: float, concurrency: int
    ) -> None:
        self._parts = parts
        self._outbox = outbox
        self._patience = patience
        self._concurrency = concurrency
        self.tokens: dict[bytes, bytes] = {}
        """Tokens by person."""
        self.refusals: dict[bytes, SubmissionResult] = {}
        """Results of people without a token."""

    async def ask(self, people: Mapping[bytes, str], tickets: Mapping[bytes, bytes]) -> None:
        """Ask for a token for each person (who -> collection), with the person's ticket.

        People who have a token in the outbox keep it, and need no ticket.
        """
        pending = await asyncio.to_thread(self._pending, people)
        self.tokens.update({each.who: each.token for each in pending if each.token})
        waiting = [each for each in pending if not each.token]

        async def work() -> None:
            async with open_connection() as client:
                while waiting:
                    each = waiting.pop()
                    if each.who in tickets:
                        await self._ask_for(client, each, tickets[each.who])
                    else:
                        self.refusals[each.who] = USED_MEANWHILE

        await run_all([work() for _ in range(min(self._concurrency, len(waiting)))])

    def _pending(self, people: Mapping[bytes, str]) -> list[PendingToken]:
        """Requests in the outbox, after new ones are stored there."""
        known = self._outbox.pending_tokens(people)
        new = []
        for who, digest in people.items():
            if who not in known:
                asked = TokenRequest.new(self._verifier(digest))
                new.append(PendingToken(who, digest, asked.request, asked.secret))
        return [*known.values(), *self._outbox.keep_token_requests(new)]

    def _verifier(self, digest: str) -> TokenVerifier:
        verifier = self._parts[digest].token_verifier
        if verifier is None:
            raise PlanError("this collection has no issuer of tokens.")
        return verifier

    async def _ask_for(
        self, client: httpx.AsyncClient, pending: PendingToken, ticket: bytes
    ) -> None:
        """Post a request until there is a final answer or patience ends."""
        begun, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            response, result, retry_after = await self._post(client, pending, ticket)
            if not result:
                break
            wait = max(retry_after, pause * (0.5 + secrets.randbelow(1000) / 1000))
            if result.status != "waiting" or time.monotonic() + wait > begun + self._patience:
                self.refusals[pending.who] = result
                return
            await asyncio.sleep(wait)
            pause = min(2.0 * pause, MAX_PAUSE_SECONDS)
        url = self._issuer_url(pending)
        try:
            asked = TokenRequest(pending.request, pending.secret)
            token = asked.token(self._verifier(pending.collection), response)
        except (SignatureRejected, TokenRejected) as error:
            sentence = f"{url}: {error} Nothing was sent to the shuffler."
            self.refusals[pending.who] = SubmissionResult("refused", sentence)
            return
        await asyncio.to_thread(self._outbox.keep_token, pending.who, pending.collection, token)
        self.tokens[pending.who] = token

    def _issuer_url(self, pending: PendingToken) -> str:
        issuer = self._parts[pending.collection].terms.issuer
        return issuer.url if issuer else ""

    async def _post(
        self, client: httpx.AsyncClient, pending: PendingToken, ticket: bytes
    ) -> tuple[bytes, SubmissionResult | None, float]:
        """Make one attempt: the answer, or why there is none and the least delay in seconds."""
        import httpx

        url = self._issuer_url(pending)
        headers = {
            "content-type": REQUEST_MEDIA_TYPE,
            "accept": RESPONSE_MEDIA_TYPE,
            "authorization": f"Bearer {ticket.hex()}",
        }
        data = b""
        try:
            async with client.stream(
                "POST", url, content=pending.request, headers=headers
            ) as response:
                async for part in response.aiter_bytes():
                    data += part
                    if len(data) > MODULUS_BYTES:
                        break
        except httpx.HTTPError as error:
            result = SubmissionResult("waiting", unreachable_text(url, error))
            return b"", result, NO_RETRY if is_untrusted_certificate(error) else 0.0
        code = response.status_code
        if code == SIGNED:
            return data, None, 0.0
        return (
            b"",
            _issuer_refusal(url, code),
            retry_after_seconds(response.headers.get("retry-after", "")),
        )


def _issuer_refusal(url: str, code: int) -> SubmissionResult:
    """Result for a person to whom the issuer gave no token, from the HTTP status."""
    if code in (401, UNKNOWN_TICKET):
        sentence = f"{url} does not know this ticket; check its digits, or ask for another one."
        return SubmissionResult("refused", sentence, code)
    if code == SPENT_TICKET:
        sentence = (
            f"{url} has given a token for this ticket to somebody with another outbox; ask for "
            "another ticket if that was not you."
        )
        return SubmissionResult("refused", sentence, code)
    if code in RETRY_STATUSES:
        return SubmissionResult("waiting", f"{url} cannot give a token now.", code)
    sentence = f"{url} gives no token: it answers with the unexpected status {code}."
    return SubmissionResult("refused", sentence, code)
