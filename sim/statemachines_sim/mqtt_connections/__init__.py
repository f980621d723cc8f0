"""MQTT connections in the simulator: MQTT clients, their connections, and the nodes of sessions behind them."""
