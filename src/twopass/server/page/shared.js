// The SharedWorker of the page: reads the events of all jobs once, and sends them to every tab. It lives as long as a tab.
import { readEvents } from "/events.js";

const tabs = new Set(); // the port of each
const jobs = new Map(); // by id, as the last event had them
let count = null; // of the jobs, once all were sent
let isReading = false;

self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data === "leave") tabs.delete(port);
    else join(port, data);
  };
};

// The tab has asked the server whether its key is right.
function join(port, headers) {
  tabs.add(port);
  for (const job of jobs.values()) port.postMessage(["job", job]);
  if (count !== null) port.postMessage(["listed", count]);
  if (!isReading) follow(headers);
}

async function follow(headers) {
  isReading = true;
  try {
    for await (const [name, data] of readEvents(headers)) {
      if (name === "job") jobs.set(data.id, data);
      else if (name === "deleted") jobs.delete(data);
      else if (name === "listed") count = data;
      for (const tab of tabs) tab.postMessage([name, data]);
    }
  } catch {
    // the connection was lost
  }
  isReading = false;
  jobs.clear();
  count = null;
  for (const tab of tabs) tab.postMessage(["lost"]); // each asks again whether its key is right
  tabs.clear();
}
