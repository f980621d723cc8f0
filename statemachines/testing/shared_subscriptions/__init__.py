"""What shared subscriptions give to tests: whole groups under Hypothesis."""
