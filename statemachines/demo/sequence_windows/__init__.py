"""The demo of sequence windows: lines over UDP multicast, some of which are lost or come twice on the way."""

from statemachines.demo.sequence_windows.play import LossDemo

DEMO = LossDemo()
