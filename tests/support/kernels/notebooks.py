"""Gives the notebooks that nbval runs a kernel of `forked.py` each."""

import pytest

from tests.support.kernels import forked


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("nbval"):  # whose imports take a second
        return
    from jupyter_client.manager import KernelManager  # noqa: PLC0415 - loaded where it is wanted
    from nbval import kernel  # noqa: PLC0415

    from tests.support.kernels.driver import own_ports  # noqa: PLC0415

    class Specs(kernel.NbvalKernelspecManager):  # type: ignore[misc] # it has no types
        def get_kernel_spec(self, kernel_name: str) -> object:
            spec = super().get_kernel_spec(kernel_name)
            spec.argv = forked.command()
            return spec

    kernel.NbvalKernelspecManager = Specs
    kernel.KernelManager = lambda **given: KernelManager(**own_ports(), **given)
