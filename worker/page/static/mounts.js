import { call } from './api.js';
import { ago, cell, count, el, replace, table } from './dom.js';

export function show(main, fail) {
  const mounts = el('section', { class: 'panel' }), pending = el('section', { class: 'panel' });
  main.append(mounts, pending);
  const stop = new AbortController();

  async function list() {
    const got = await call('Storage/ListMounts', {}, stop.signal);
    replace(mounts, el('h2', {}, 'What is mounted'), table(['Mount', 'Holders#', ''], (got.mounts || []).map((m) => el('tr', {},
      cell(m.what, 'wide mono'), cell(count(m.holders), 'number'), cell(m.idle ? el('span', { class: 'soft' }, 'idle') : el('span', { class: 'good' }, 'held')))), 'nothing'));
    replace(pending, el('h2', {}, 'Unmounts under way'), table(['Mount', 'Since', 'Error'], (got.pending || []).map((p) => el('tr', {},
      cell(p.what, 'wide mono'), cell(ago(p.since)), cell(p.error || '', p.parked ? 'wide bad' : 'wide'))), 'none'));
  }
  return { stop: () => stop.abort(), update: () => list().catch(fail) };
}
