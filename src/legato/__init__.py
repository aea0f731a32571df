"""Legato: large language models served as CUDA graphs, with proof of which graph ran."""

from importlib.metadata import version

__version__ = version("legato")
