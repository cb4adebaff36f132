// Evaluated once in each kernel before any cell: all that code prints, shows and returns goes into one pipe of the
// guest's, in order. Deno's kernel hands output from thread to thread through a queue without a limit and ends a cell
// before its output has left it: a cell's last lines came after its end, and a loop that prints took all memory.
const internals = Deno[Deno.internal];
const encoder = new TextEncoder();
const PIECE_CHARACTERS = 64 * 1024;
const MAX_LINE_BYTES = 30 * 1024 * 1024;

export default function (pipePath) {
  const pipe = Deno.openSync(pipePath, { write: true });

  function send(kind, content) {
    let line = encoder.encode(`${JSON.stringify([kind, content])}\n`);
    if (line.length > MAX_LINE_BYTES) {
      line = encoder.encode(`${JSON.stringify(["note", `left out: output of ${line.length} bytes`])}\n`);
    }
    // A write waits until the guest has read: whoever prints is as fast as the reader.
    for (let sent = 0; sent < line.length;) sent += pipe.writeSync(line.subarray(sent));
  }

  function print(text, name) {
    for (let start = 0, end; start < text.length; start = end) {
      end = start + PIECE_CHARACTERS;
      if ((text.charCodeAt(end - 1) & 0xfc00) === 0xd800) end--; // no character is cut in two
      send("stream", { name, text: text.slice(start, end) });
    }
  }

  takeConsole(print);
  takeStreams(print);
  takeDisplays(send);
  for (const kind of ["error", "unhandledrejection"]) {
    addEventListener(kind, (event) => {
      print(`Uncaught ${Deno.inspect(event.error ?? event.reason)}\n`, "stderr");
      event.preventDefault();
    });
  }
}

function takeConsole(print) {
  globalThis.console = new internals.Console((text, level) => print(text, level > 1 ? "stderr" : "stdout"));
}

function takeStreams(print) {
  for (const name of ["stdout", "stderr"]) {
    const decoder = new TextDecoder();
    const writeSync = (bytes) => {
      print(decoder.decode(bytes, { stream: true }), name);
      return bytes.length;
    };
    Object.defineProperties(Deno[name], {
      writeSync: { value: writeSync },
      write: { value: async (bytes) => writeSync(bytes) },
      writable: { value: new WritableStream({ write: writeSync }) },
    });
    // Node's streams have more than a write; only that is replaced.
    process[name].write = (data, encoding, done = encoding) => {
      print(typeof data === "string" ? data : decoder.decode(data, { stream: true }), name);
      if (typeof done === "function") queueMicrotask(done);
      return true;
    };
  }
}

function takeDisplays(send) {
  const { formatInner } = internals.jupyter;
  Deno.jupyter.broadcast = async (kind, content) => send(kind, content);
  Deno.jupyter.display = async (value, { raw = false, update = false, display_id } = {}) => {
    const data = await formatInner(value, raw);
    send(update ? "update_display_data" : "display_data", { data, transient: display_id ? { display_id } : {} });
  };
  // The kernel calls this with each cell's value, and waits for it before it says that the cell has ended.
  internals.jupyter.broadcastResult = async (execution_count, value) => {
    if (value === undefined) return;
    try {
      send("execute_result", { execution_count, data: await formatInner(value, false) });
    } catch (error) {
      send("error", { ename: error?.name ?? "Error", evalue: error?.message ?? String(error) });
    }
  };
}
