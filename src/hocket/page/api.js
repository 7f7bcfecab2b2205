// Calls to the controller. The cookie is sent by the browser; the other half of the session is kept here.

import { isRecorded, recordedAnswer } from "./recording.js";

const PROOF = "hocket-proof";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasSession = () => isRecorded || localStorage.getItem(PROOF) !== null;

async function answered(method, path, body, signal) {
  const headers = { "X-Hocket-Proof": localStorage.getItem(PROOF) ?? "" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "same-origin",
    cache: "no-store",
    signal,
  });
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    if (response.status === 401 && path !== "v1/page/session") {
      localStorage.removeItem(PROOF);
      window.dispatchEvent(new CustomEvent("signed-out"));
    }
    throw new ApiError(response.status, said.error ?? `the controller answered ${response.status}`);
  }
  return response;
}

export async function call(method, path, body) {
  if (isRecorded) {
    const found = method === "GET" ? recordedAnswer(path) : undefined;
    if (found === undefined) throw new ApiError(404, "This page shows a recording, which has nothing of that.");
    return found;
  }
  return (await answered(method, path, body)).json();
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);

/** Signs in with {link} or {token}. */
export async function signIn(given) {
  const session = await call("POST", "v1/page/session", given);
  localStorage.setItem(PROOF, session.proof);
}

export async function signOut() {
  try {
    await call("DELETE", "v1/page/session");
  } finally {
    localStorage.removeItem(PROOF);
    window.dispatchEvent(new CustomEvent("signed-out"));
  }
}

export const ofJob = (id, rest = "") => `v1/jobs/${encodeURIComponent(id)}${rest}`;

/** A part of a job's log: its bytes, where to go on, and of which attempt it is. */
export async function logPart(id, offset, limit, attempt) {
  const query = new URLSearchParams({ offset, limit, attempt });
  const response = await answered("GET", ofJob(id, `/log?${query}`));
  return {
    bytes: new Uint8Array(await response.arrayBuffer()),
    next: Number(response.headers.get("X-Next-Offset")),
    attempt: Number(response.headers.get("X-Attempt")),
  };
}

/**
 * Events of the controller, from the moment at which `onOpen` is called until the connection ends or breaks.
 * EventSource would be shorter, but cannot send a header.
 */
export async function listen(onOpen, onEvent, signal) {
  if (isRecorded) {
    onOpen();
    await new Promise((resolve) => signal.addEventListener("abort", resolve)); // Nothing happens any more.
    return;
  }
  const response = await answered("GET", "v1/events", undefined, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  onOpen();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onEvent("alive", null);
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s)));
      if (fields.event) onEvent(fields.event, JSON.parse(fields.data));
    }
  }
}
