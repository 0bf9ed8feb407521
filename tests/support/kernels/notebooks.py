"""Gives the notebooks that nbval runs a kernel of `forked.py` each."""

import pytest

from tests.support.kernels import forked


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("nbval"):  # whose imports take a second
        return
    from nbval import kernel  # noqa: PLC0415 - where it is wanted, it is loaded

    class Specs(kernel.NbvalKernelspecManager):  # type: ignore[misc] # it has no types
        def get_kernel_spec(self, kernel_name: str) -> object:
            spec = super().get_kernel_spec(kernel_name)
            spec.argv = forked.command()
            return spec

    kernel.NbvalKernelspecManager = Specs
