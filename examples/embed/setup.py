"""Builds the service in Cython: ``python setup.py build_ext --inplace``. Needs Cython and a C compiler."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import seqcast

setup(
    name="counting",
    ext_modules=cythonize([Extension("counting", ["counting.pyx"], include_dirs=[seqcast.get_include()])]),
)
