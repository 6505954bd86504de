"""The commands that training adds to `kernelmate`."""
