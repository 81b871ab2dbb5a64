"""Settings from a TOML file and from the environment."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seqcast.codes as codes
from seqcast.config import check
from seqcast.errors import ConfigError
from seqcast.files import NAMED_BYTES_MAX, read_file

ENVIRONMENT_PREFIX = "SEQCAST_"
NO_SETTINGS = ("CONFIG", "EXTENSIONS", "LTO", "SANITIZE", "TRANSCRIPTS")
"""Ends of the variables that begin with ``SEQCAST_`` and are not settings: the file's name, and the variables of the
build and the tests."""
_OF_A_SERVICE = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_URL = re.compile(r"(tcp|udp|sctp)://")

log = logging.getLogger("seqcast")


def toml_table(path: str | Path) -> dict[str, Any]:
    """The table ``[seqcast]`` of a TOML file if it has one, else all of it.

    Raises:
        ConfigError: the file cannot be read, or is not valid TOML.
    """
    try:
        table: dict[str, Any] = tomllib.loads(read_file(path, NAMED_BYTES_MAX, links=True).decode())
    except OSError as error:
        raise ConfigError(f"cannot read the settings {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    inner = table.get("seqcast")
    return inner if isinstance(inner, dict) else table


def variables(environment: Mapping[str, str], kinds: Mapping[str, type]) -> tuple[str, dict[str, Any]]:
    """The path of the TOML file that the environment names, or "", and the settings that it has itself.

    Args:
        environment: the variables.
        kinds: name -> type of each setting.

    Raises:
        ConfigError: a variable names no setting, or its text does not fit the setting's type.
    """
    known = {name.upper() for name in kinds}
    environment = _without_services(environment)
    for variable in sorted(environment):
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name != variable and name not in known and name not in NO_SETTINGS:
            close = check.closest(name, sorted({*known, *NO_SETTINGS}))
            hint = f"did you mean {ENVIRONMENT_PREFIX}{close}?" if close else "unset it"
            raise ConfigError(
                f"the environment has {variable}, which is not a setting; {hint} (docs/config.md lists the settings)"
            )
    settings = {
        name: check.parsed(variable, kind, environment[variable])
        for name, kind in kinds.items()
        if (variable := ENVIRONMENT_PREFIX + name.upper()) in environment
    }
    return environment.get(ENVIRONMENT_PREFIX + "CONFIG", ""), settings


def _without_services(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that Kubernetes puts there for a service whose name begins with "seqcast",
    such as ``SEQCAST_SERVICE_HOST`` and ``SEQCAST_PORT=tcp://10.0.0.1:80``. Those are told in one line."""
    of_services = sorted(
        variable
        for variable, text in environment.items()
        if (name := variable.removeprefix(ENVIRONMENT_PREFIX)) != variable
        and (_OF_A_SERVICE.fullmatch(name) or (re.search(r"(^|_)PORT$", name) and _URL.match(text)))
    )
    if of_services:
        log.warning(
            codes.KUBERNETES(
                "%s%s in the environment: no setting, but a variable that Kubernetes sets for a service, and left "
                "alone (rename the service, or set enableServiceLinks: false)"
            ),
            of_services[0], f" and {len(of_services) - 1} more" if len(of_services) > 1 else "",
        )  # fmt: skip
    return {variable: text for variable, text in environment.items() if variable not in of_services}
