// Calls of the service, by Connect with JSON.

const name = 'holdfast.worker.v1.';

// The token comes with the address, once, and stays for this tab.
const given = new URLSearchParams(location.hash.slice(1)).get('token');
if (given) {
  sessionStorage.setItem('token', given);
  history.replaceState(null, '', location.pathname + '#overview');
}

export function setToken(token) {
  sessionStorage.setItem('token', token);
}

function headers(type) {
  const h = { 'Content-Type': type, 'Connect-Protocol-Version': '1' };
  const token = sessionStorage.getItem('token');
  if (token) h.Authorization = 'Bearer ' + token;
  return h;
}

export class CallError extends Error {
  constructor(code, message) {
    super(message || code);
    this.code = code;
  }
}

async function failure(response) {
  if (response.status === 401) return new CallError('unauthenticated', 'the token is missing or wrong');
  try {
    const e = await response.json();
    return new CallError(e.code, e.message);
  } catch {
    return new CallError('unavailable', 'HTTP ' + response.status);
  }
}

// call makes a call with one answer.
export async function call(method, request = {}, signal) {
  const response = await fetch(name + method, { method: 'POST', headers: headers('application/json'), body: JSON.stringify(request), signal });
  if (!response.ok) throw await failure(response);
  return response.json();
}

// stream makes a call with many answers, and calls each with one after the other.
export async function stream(method, request, each, signal) {
  const message = new TextEncoder().encode(JSON.stringify(request));
  const body = new Uint8Array(5 + message.length);
  new DataView(body.buffer).setUint32(1, message.length);
  body.set(message, 5);
  const response = await fetch(name + method, { method: 'POST', headers: headers('application/connect+json'), body, signal });
  if (!response.ok) throw await failure(response);
  const reader = response.body.getReader();
  let left = new Uint8Array(0);
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const all = new Uint8Array(left.length + value.length);
    all.set(left);
    all.set(value, left.length);
    left = all;
    while (left.length >= 5) {
      const size = new DataView(left.buffer, left.byteOffset).getUint32(1);
      if (left.length < 5 + size) break;
      const text = JSON.parse(new TextDecoder().decode(left.subarray(5, 5 + size)));
      const last = left[0] & 2;
      left = left.slice(5 + size);
      if (last) {
        if (text.error) throw new CallError(text.error.code, text.error.message);
        return;
      }
      each(text);
    }
  }
}

// bytes are those of a field in JSON.
export function bytes(field) {
  return Uint8Array.from(atob(field || ''), (c) => c.charCodeAt(0));
}
