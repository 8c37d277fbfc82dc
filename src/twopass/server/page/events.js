// Reads the server's events of all jobs, for a tab or for the SharedWorker. EventSource cannot send the key.
export const SILENCE_MS = 40000; // the server sends something every 15 s

// Yield [name, data] for each event, and ["alive"] where the server only says that it is there. It ends with the
// connection, or when the caller stops.
export async function* readEvents(headers) {
  const abort = new AbortController();
  const limit = (answer) => {
    const timer = setTimeout(() => abort.abort(), SILENCE_MS);
    return answer.finally(() => clearTimeout(timer));
  };
  try {
    const response = await limit(fetch("/v1/events", { headers, signal: abort.signal }));
    if (!response.ok) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await limit(reader.read());
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
        yield fields.event ? [fields.event, JSON.parse(fields.data)] : ["alive"];
      }
    }
  } finally {
    abort.abort();
  }
}
