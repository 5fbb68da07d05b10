import { bytes, call } from './api.js';
import { count, el, num, replace, seconds, size, took } from './dom.js';

const uses = ['free', 'meta', 'branch', 'leaf', 'overflow', 'free list', 'in use', 'damaged'];
const width = 64; // cells in a row

// draw draws a map of pages: a cell has the colour of what most of its pages are, and is as strong as it is full.
function draw(canvas, got) {
  const use = bytes(got.use), share = bytes(got.share), style = getComputedStyle(document.documentElement);
  canvas.width = width * 8;
  canvas.height = Math.max(1, Math.ceil(use.length / width)) * 8;
  const c = canvas.getContext('2d');
  use.forEach((u, i) => {
    if (!u) return;
    c.globalAlpha = 0.25 + (0.75 * share[i]) / 255;
    c.fillStyle = style.getPropertyValue('--use' + u);
    c.fillRect((i % width) * 8, Math.floor(i / width) * 8, 7, 7);
  });
  const used = num(got.used), all = num(got.pages);
  canvas.setAttribute('aria-label', `${count(used)} of ${count(all)} pages in use`);
  return `${count(used)} of ${count(all)} pages in use, ${count(got.pagesPerCell)} in a cell`;
}

export function show(main, fail) {
  const all = el('div');
  main.append(all, el('p', { class: 'legend' }, ...uses.map((text, i) => {
    const box = el('i');
    if (i) box.style.background = `var(--use${i})`;
    return el('span', {}, box, text);
  })));
  const stop = new AbortController(), panels = new Map();
  let busy = false, before = new Map();

  function panel(name) {
    if (!panels.has(name)) {
      const p = { figures: el('dl'), canvas: el('canvas', { class: 'map', role: 'img' }), note: el('p', { class: 'soft' }) };
      all.append(el('section', { class: 'panel' }, el('h2', { class: 'mono' }, name), el('div', { class: 'columns' }, el('div', {}, p.canvas, p.note), p.figures)));
      panels.set(name, p);
    }
    return panels.get(name);
  }

  async function list() {
    const got = await call('Storage/ListDatabases', {}, stop.signal), now = Date.now();
    for (const d of got.databases || []) {
      const p = panel(d.name), old = before.get(d.name), commits = num(d.commits);
      const rate = old ? ((commits - old.commits) * 1000) / Math.max(1, now - old.at) : 0;
      before.set(d.name, { commits, at: now });
      const pairs = [['Size', `${size(d.bytes)}, ${size(d.freeBytes)} of it free`], ['Commits', `${count(commits)}, ${rate.toFixed(1)} a second`],
        ['Commit took', `${took(seconds(d.commitP50))} (median), ${took(seconds(d.commitP99))} (p99), ${took(seconds(d.commitMax))} at most`],
        ['Bytes a commit', commits ? size(num(d.bytesWritten) / commits) : '–'], ['Flushes', count(d.flushes)], ['Readers', count(d.readers)], ['Vacuum', d.vacuum]];
      replace(p.figures, ...pairs.flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, v)]));
      p.note.textContent = draw(p.canvas, await call('Storage/GetPages', { database: d.name, cells: width * 32 }, stop.signal));
    }
  }
  return {
    stop: () => stop.abort(),
    update() {
      if (busy) return;
      busy = true;
      list().catch(fail).finally(() => (busy = false));
    },
  };
}
