// Subscribes with MQTT.js and prints a line of JSON for each connection and each message.
//   node mqtt_js_subscriber.js MODULE CLIENT_ID PORT KEEP_ALIVE_S LEVEL   (LEVEL: 4 or 5)
"use strict";
const [module_, clientId, port, keepalive, level] = process.argv.slice(2);
const mqtt = require(module_);

const client = mqtt.connect({
  host: "127.0.0.1",
  port: Number(port),
  protocolVersion: Number(level),
  clientId,
  clean: false,
  keepalive: Number(keepalive),
  reconnectPeriod: 100,
  resubscribe: false,
  properties: level === "5" ? { sessionExpiryInterval: 3600 } : undefined,
});
client.on("connect", (connack) => {
  console.log(JSON.stringify({ present: connack.sessionPresent }));
  if (!connack.sessionPresent) client.subscribe("p/#", { qos: 1 });
});
client.on("message", (topic, payload, packet) => {
  console.log(JSON.stringify({ n: payload.toString(), m: packet.messageId, dup: packet.dup }));
});
client.on("error", () => {}); // it connects again by itself
