// Elements, and figures for people. Texts of the store are only ever set as text.

// el makes an element: attributes, then children, of which strings become text.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (value !== false && value !== undefined) e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== null && c !== ''));
  return e;
}

export const num = (v) => Number(v || 0);

export function size(v) {
  let n = num(v);
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (n < 1024 || unit === 'TiB') return (unit === 'B' || n >= 100 ? Math.round(n) : n.toFixed(1)) + ' ' + unit;
    n /= 1024;
  }
}

export const count = (v) => num(v).toLocaleString('en');

// seconds is a protobuf duration, as "1.5s".
export const seconds = (v) => parseFloat(v || '0');

export function took(s) {
  if (s < 0.001) return Math.round(s * 1e6) + ' µs';
  if (s < 1) return (s * 1000).toFixed(s < 0.1 ? 1 : 0) + ' ms';
  if (s < 90) return s.toFixed(1) + ' s';
  if (s < 5400) return Math.round(s / 60) + ' min';
  if (s < 172800) return Math.round(s / 3600) + ' h';
  return Math.round(s / 86400) + ' d';
}

export const ago = (time) => (time ? took(Math.max(0, (Date.now() - Date.parse(time)) / 1000)) + ' ago' : '–');

// short is a name without most of its digest.
export const short = (name) => (name || '').replace(/(sha256:|step-)([0-9a-f]{12})[0-9a-f]{52}$/, (all, kind, head) => (kind === 'step-' ? kind : '') + head);

// shortened is a text with such names in it.
export const shortened = (text) => text.replace(/(step-|sha256:)([0-9a-f]{12})[0-9a-f]{52}/g, (all, kind, head) => (kind === 'step-' ? kind : '') + head);

export function table(heads, rows, none) {
  if (!rows.length) return el('p', { class: 'note' }, none);
  const head = el('tr', {}, ...heads.map((h) => el('th', { scope: 'col', class: h.endsWith('#') ? 'number' : '' }, h.replace('#', ''))));
  return el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows)));
}

export const cell = (content, kind = '') => el('td', { class: kind }, ...[].concat(content));

// replace replaces the content of an element, and keeps the focus where it was, by data-key.
export function replace(parent, ...children) {
  const key = document.activeElement?.dataset?.key;
  parent.replaceChildren(...children);
  if (key) parent.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}
