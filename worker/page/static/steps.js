import { bytes, stream } from './api.js';
import { ago, cell, count, el, num, replace, short, size, table, took } from './dom.js';

const states = { STATE_QUEUED: 'queued', STATE_RUNNING: 'running' };

function state(s) {
  if (s.state !== 'STATE_DONE') return el('span', { class: 'state' }, states[s.state]);
  if (s.error) return el('span', { class: 'bad' }, 'failed');
  return el('span', { class: s.hit ? 'soft' : 'good' }, s.hit ? 'hit' : 'ran');
}

const since = (from, to) => (from ? took(((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000) : '–');

const most = 1 << 20; // characters of output that are shown: a step can write more than a browser has memory

export function show(main, fail) {
  const list = el('section', { class: 'panel' }), log = el('section', { class: 'panel', 'aria-live': 'off' });
  main.append(el('div', { class: 'columns' }, list, log));
  let following = new AbortController();

  function follow(s) {
    following.abort();
    following = new AbortController();
    const out = el('pre', { tabindex: '0', 'aria-label': 'output' }), note = el('p', { class: 'note' }, '');
    replace(log, el('h2', {}, 'Output of step ' + s.serial), el('p', { class: 'mono' }, s.command), s.error ? el('p', { class: 'bad' }, s.error) : '', out, note);
    const decoder = new TextDecoder();
    let shown = 0;
    stream('Steps/Logs', { serial: s.serial }, (m) => {
      const end = out.scrollTop + out.clientHeight >= out.scrollHeight - 20;
      const text = decoder.decode(bytes(m.output), { stream: true });
      out.append(text);
      for (shown += text.length; shown > most; out.firstChild.remove()) {
        shown -= out.firstChild.length;
        note.textContent = 'what came first is not shown any more';
      }
      if (end) out.scrollTop = out.scrollHeight;
    }, following.signal).then(() => {
      const all = out.firstChild ? 'that was all' : 'it wrote nothing';
      note.textContent = note.textContent ? `${all}; ${note.textContent}` : all;
    }).catch(fail);
  }
  replace(log, el('p', { class: 'note' }, 'Choose a step to see what it writes.'));

  return {
    stop: () => following.abort(),
    update({ steps = [] }) {
      replace(list, el('h2', {}, 'Steps in hand, and those that ended lately'), table(['', 'Command', 'Queued', 'Took#', 'Output#', 'Result'], steps.map((s) => el('tr', {},
        cell(state(s)), cell(el('button', { class: 'link mono', 'data-key': s.serial, onclick: () => follow(s) }, s.command || '?'), 'wide'), cell(ago(s.queued)),
        cell(since(s.started, s.ended), 'number'), cell(num(s.outputBytes) ? size(s.outputBytes) : '', 'number'),
        cell(s.snapshot ? short(s.snapshot) : num(s.waiters) > 1 ? `${count(s.waiters)} wait for it` : '', 'mono'))), 'none yet: holdfastd step runs one'));
    },
  };
}
