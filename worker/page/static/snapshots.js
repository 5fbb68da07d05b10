import { call } from './api.js';
import { ago, cell, count, el, num, replace, short, shortened, size, table } from './dom.js';

const orders = [['ORDER_LAST_USED', 'used longest ago'], ['ORDER_SIZE', 'largest'], ['ORDER_CREATED', 'newest'], ['ORDER_NAME', 'name']];
const pageSize = 200;

export function show(main, fail) {
  const search = el('input', { type: 'search', placeholder: 'part of a name or command ( / )', 'aria-label': 'search snapshots' });
  const order = el('select', { 'aria-label': 'order' }, ...orders.map(([value, text]) => el('option', { value }, text)));
  const tree = el('input', { type: 'checkbox', id: 'tree', checked: true });
  const found = el('span', { class: 'soft', role: 'status' }), body = el('section', { class: 'panel' }), details = el('section', { class: 'panel' });
  main.append(el('div', { class: 'tools' }, search, order, el('label', {}, tree, ' tree'), found), el('div', { class: 'columns' }, body, details));
  replace(details, el('p', { class: 'note' }, 'Choose a snapshot to see who keeps it.'));
  let stop = new AbortController();

  function flags(s) {
    return [s.kind, s.pinned && 'pinned', s.damaged && 'damaged', s.distrusted && 'distrusted'].filter(Boolean).join(', ');
  }

  function row(s, depth, inTree) {
    const open = num(s.children) && inTree ? el('button', { class: 'twist', 'aria-expanded': 'false', 'aria-label': 'made from ' + short(s.name) }, '▸') : el('button', { class: 'twist', disabled: true, 'aria-hidden': 'true' }, '');
    const label = el('button', { class: 'link mono', onclick: () => detail(s) }, short(s.name));
    const first = cell([open, label, s.namespace !== 'local' ? el('span', { class: 'soft' }, ' ' + s.namespace) : ''], 'wide');
    first.style.paddingLeft = depth * 1.2 + 'rem';
    const tr = el('tr', {}, first, cell(flags(s)), cell(s.kind === 'committed' ? size(s.bytes) : '–', 'number'), cell(ago(s.lastUsed)), cell(num(s.children) ? count(s.children) : '', 'number'), cell(s.command || '', 'wide mono'));
    let below;
    open.onclick = async () => {
      if (below) {
        below.forEach((r) => r.remove());
        below = undefined;
        open.textContent = '▸';
      } else {
        open.textContent = '▾';
        below = [];
        await more({ namespace: s.namespace, children: true, parent: s.name }, depth + 1, '', (rows) => {
          const after = below.at(-1) || tr;
          after.after(...rows);
          below.push(...rows);
        });
      }
      open.setAttribute('aria-expanded', String(Boolean(below)));
    };
    return tr;
  }

  // more asks for a page of snapshots, and gives its rows, with one that asks for the next page.
  async function more(request, depth, token, add) {
    try {
      const got = await call('Snapshots/List', { ...request, order: order.value, pageSize, pageToken: token }, stop.signal);
      const rows = (got.snapshots || []).map((s) => row(s, depth, request.children));
      if (got.nextPageToken) {
        const next = el('tr', {}, cell(el('button', { onclick: () => {
          next.remove();
          more(request, depth, got.nextPageToken, add);
        } }, 'more')));
        next.firstChild.style.paddingLeft = depth * 1.2 + 'rem';
        rows.push(next);
      }
      add(rows, got);
    } catch (error) {
      fail(error);
    }
  }

  function list() {
    stop.abort();
    stop = new AbortController();
    delete body.dataset.request;
    const request = { search: search.value.trim(), children: tree.checked && !search.value.trim() };
    more(request, 0, '', (rows, got) => {
      const there = body.querySelector('tbody');
      if (there && rows.length && body.dataset.request === JSON.stringify([request, order.value])) {
        there.append(...rows);
        return;
      }
      body.dataset.request = JSON.stringify([request, order.value]);
      found.textContent = `${count(got.total)} ${request.children ? 'without a parent' : 'found'}`;
      replace(body, table(['Snapshot', 'Kind', 'Size#', 'Last used', 'Children#', 'Command'], rows, 'none'));
    });
  }

  const stays = (kept) => el('div', { class: 'soft' }, el('p', {}, 'It stays:'), el('ul', {}, ...kept.map((why) => el('li', {}, shortened(why)))));

  async function detail(s) {
    try {
      const got = await call('Snapshots/Get', { namespace: s.namespace, name: s.name }, stop.signal);
      const i = got.snapshot, pairs = [['Name', i.name], ['Kind', flags(i)], ['Parent', i.parent || '–'], ['Size', i.kind === 'committed' ? `${size(i.bytes)} in ${count(i.files)} files` : '–'],
        ['Created', i.created], ['Last used', i.lastUsed], ['Command', i.command || '–'], ['Children', count(i.children)], ['Leases', (got.leases || []).join('; ') || '–']];
      for (const [key, value] of Object.entries(got.labels || {})) pairs.push([key, value]);
      replace(details, el('h2', {}, short(i.name)), got.prune ? el('p', { class: 'warn' }, 'The next prune removes it: ' + got.prune) : stays(got.kept || []),
        el('dl', {}, ...pairs.flatMap(([k, v]) => [el('dt', {}, k), el('dd', { class: 'mono' }, v)])),
        el('p', {}, el('button', { onclick: () => remove(i) }, 'Remove')));
    } catch (error) {
      fail(error);
    }
  }

  async function remove(i) {
    if (!confirm(`Remove ${short(i.name)}?`)) return;
    try {
      await call('Snapshots/Remove', { namespace: i.namespace, name: i.name });
      replace(details, el('p', { class: 'note' }, `${short(i.name)} was removed.`));
      list();
    } catch (error) {
      replace(details, el('p', { class: 'bad' }, error.message));
    }
  }

  let typing;
  search.oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(list, 150);
  };
  order.onchange = tree.onchange = list;
  list();
  return { stop: () => stop.abort() };
}
