"""Shared subscriptions in reports: what is judged and measured besides the steps of its machines."""

from statemachines_reports.shared_subscriptions.report import REPORTS as REPORTS
