"""Interfaces for applications, each as the library that it stands in for has it."""
