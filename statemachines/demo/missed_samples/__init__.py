"""The demo of missed samples: lines over real zenoh through a link that loses some of them."""

from statemachines.demo.missed_samples.play import SampleDemo

DEMO = SampleDemo()
