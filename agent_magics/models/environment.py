"""Reads from the environment how servers are reached: proxies, certificates, the account."""

import os
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit

from agent_magics.models.providers.endpoints import check_address
from agent_magics.protocol.errors import FatalError

_ACCOUNT = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
_READ = (
    *(*_ACCOUNT.values(), "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)

# Where distributions of Linux keep the certificates that they trust.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

OTHER_PROXY = (
    "Cannot connect to {address}: the environment names a proxy that cannot be used ({kind}:...); "
    "name one by an address such as http://localhost:3128, or the server in NO_PROXY."
)
NO_VALUE = "{name} has a line break or a letter beyond ASCII within it, as no header can: mend it."


def values_read() -> tuple[str | None, ...]:
    """Return the values of all variables that are read here, to compare them with later ones."""
    return tuple(map(os.environ.get, _READ))


def proxy_to(address: str) -> str:
    """Return the URL of the proxy that the environment sets for `address`, or ""."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - 20 ms, rarely needed

    there, proxies = urlsplit(address), getproxies()
    proxy = (proxies.get(there.scheme) or proxies.get("all", "")).strip()
    is_direct = any(
        _is_named(there.hostname or "", name) for name in proxies.get("no", "").split(",")
    )
    if not proxy or is_direct or proxy_bypass(there.netloc.rpartition("@")[2]):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def usable_proxy(address: str) -> str:
    """Return the URL of the proxy to use for `address`, or "".

    Raises:
        FatalError: no request can be sent through it.
    """
    proxy = proxy_to(address)
    try:
        check_address(proxy)
    except ValueError:
        kind = proxy.partition(":")[0]
        raise FatalError(OTHER_PROXY.format(address=address, kind=kind)) from None
    return proxy


def _is_named(host: str, name: str) -> bool:
    """Return whether a name of NO_PROXY is that of a host in a form that urllib does not know: an
    IPv6 address, a network (10.0.0.0/8), ``*.host``.
    """
    from ipaddress import ip_address, ip_network  # noqa: PLC0415 - rarely needed

    name = name.strip().lower()
    try:
        return ip_address(host) in ip_network(name.strip("[]"), strict=False)
    except ValueError:
        return name.startswith("*.") and host.endswith(name[1:])


def account_headers() -> dict[str, str]:
    """Return the headers that name the organization and the project, as OpenAI reads them.

    Raises:
        FatalError: no header can hold one.
    """
    headers = {}
    for header, name in _ACCOUNT.items():
        if value := os.environ.get(name, "").strip():
            if not (value.isascii() and value.isprintable()):
                raise FatalError(NO_VALUE.format(name=name))
            headers[header] = value
    return headers


def trust() -> ssl.SSLContext:
    """Return the settings of TLS: certificates of this machine are trusted.

    SSL_CERT_FILE or SSL_CERT_DIR names others.
    """
    is_chosen = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    if sys.platform in ("darwin", "win32") and not is_chosen:
        import truststore  # noqa: PLC0415 - installed and needed only there

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    if not (is_chosen or ssl.get_default_verify_paths().cafile):
        # This Python may have been built for another distribution.
        bundle = next((each for each in _BUNDLES if Path(each).exists()), None)
        if bundle is not None:
            context.load_verify_locations(bundle)
    return context
