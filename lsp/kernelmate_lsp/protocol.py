"""JSON-RPC protocol of the server: every request is answered; malformed ones with the error code of their fault."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from cattrs import transform_error
from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
)
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    LanguageServerProtocol,
)
from pygls.protocol.json_rpc import MsgId

NOT_INITIALIZED = -32002
_EXPLAINED = 3
"""Maximum number of faults in a message's parameters that the answer names."""
_SNAKE = re.compile(r"(?<=[a-z])_([a-z])")
"""Pattern of underscores in Pygls' parameter names, which are camel case in the protocol."""

log = logging.getLogger(__name__)


class AnsweringProtocol(LanguageServerProtocol):
    """Protocol that answers malformed messages.

    Pygls drops a request whose parameters do not have their types and shows the user an error; the client waits forever.
    """

    def structure_message(self, data: Any) -> Any:
        """Returns an object unchanged; `handle_message` converts complete messages to their types.

        Pygls calls this for every object in a message, and nested objects may have a message's keys by chance.
        """
        return data

    def handle_message(self, message: Any) -> None:
        """Handles one parsed message: a malformed request is answered, a malformed notification is logged."""
        if not isinstance(message, Mapping):
            self._refuse({}, JsonRpcInvalidRequest("A message must be an object."))
            return
        try:
            structured = self._structured(message)
        except JsonRpcException as error:
            self._refuse(message, error)
        else:
            super().handle_message(structured)

    def refuse_text(self) -> None:
        """Answers a message that is not JSON."""
        self._refuse({}, JsonRpcParseError("The message is not JSON."))

    def _structured(self, message: Mapping[str, Any]) -> Any:
        """Converts a message to its method's type.

        Raises:
            JsonRpcException: the message is malformed, or comes before `initialize` or after `shutdown`.
        """
        if message.get("jsonrpc") != self.VERSION:
            raise JsonRpcInvalidRequest('"jsonrpc" must be "2.0".')
        if "id" in message and not _is_id(message["id"]):
            raise JsonRpcInvalidRequest('"id" must be a number or a string.')
        if "method" in message:
            self._expect(message["method"], request="id" in message)
        elif "id" not in message:
            raise JsonRpcInvalidRequest('A message must have "method" or "id".')
        try:
            return self._converter.structure(message, self._type_of(message))
        except Exception as error:
            raise JsonRpcInvalidParams(f"Invalid parameters: {_faults(error)}") from error

    def _type_of(self, message: Mapping[str, Any]) -> type[Any]:
        if "method" in message:
            fallback = JsonRPCRequestMessage if "id" in message else JsonRPCNotification
            return self.get_message_type(message["method"]) or fallback
        if "error" in message:
            return types.ResponseErrorMessage
        return self._result_types.pop(message["id"], None) or JsonRPCResponseMessage

    def _send_handler_result(self, future: Future[Any], *, msg_id: MsgId) -> None:
        """Answers a request; a JSON-RPC error raised by a handler is sent to the client and not logged as a failure."""
        error = None if future.cancelled() else future.exception()
        if isinstance(error, JsonRpcException):
            self._request_futures.pop(msg_id, None)
            self._send_response(msg_id, None, error.to_response_error())
        else:
            super()._send_handler_result(future, msg_id=msg_id)

    def _expect(self, method: object, *, request: bool) -> None:
        """Checks that a method can be called now.

        Raises:
            JsonRpcException: there is no such method, or it was called before `initialize` or after `shutdown`.
        """
        if not isinstance(method, str):
            raise JsonRpcInvalidRequest('"method" must be a string.')
        if self._workspace is None and method not in {types.INITIALIZE, types.EXIT}:
            raise JsonRpcException("The server is not initialized.", NOT_INITIALIZED)
        if request and self._shutdown:
            raise JsonRpcInvalidRequest("The server was shut down.")
        known = method in self.fm.features or method in self.fm.builtin_features
        if not known and method != types.CANCEL_REQUEST:
            raise JsonRpcMethodNotFound.of(method)

    def _refuse(self, message: Mapping[str, Any], error: JsonRpcException) -> None:
        """Answers a malformed request, fails the pending request of a malformed response, and logs other messages."""
        log.info("%s: %s", message.get("method", "a message"), error.message)
        number: Any = message.get("id")
        if not _is_id(number):
            number = None
        if "method" not in message and number in self._request_futures:
            self._handle_response(number, None, error.to_response_error())
        elif "id" in message or "method" not in message:
            self._send_response(number, None, error.to_response_error())


def _is_id(number: Any) -> bool:
    return isinstance(number, str | int) and not isinstance(number, bool)


def _faults(error: Exception) -> str:
    """Describes the faults of a message that does not match its method's type, with their positions."""
    told = [_SNAKE.sub(lambda match: match[1].upper(), one) for one in transform_error(error, path="message")]
    found = list(dict.fromkeys(told))
    return "; ".join(found[:_EXPLAINED]) + (f"; and {len(found) - _EXPLAINED} more" if len(found) > _EXPLAINED else "")
