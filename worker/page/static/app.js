import { CallError, setToken, stream } from './api.js';
import { el, num } from './dom.js';
import * as overview from './overview.js';
import * as steps from './steps.js';
import * as snapshots from './snapshots.js';
import * as mounts from './mounts.js';
import * as databases from './databases.js';

const views = { overview, steps, snapshots, mounts, databases };
const main = document.getElementById('view');
const live = document.getElementById('live');

let view; // that is shown: { update(watched), stop() }
let last; // what was watched last

// show shows the view that the address names.
function show() {
  const name = location.hash.slice(1) in views ? location.hash.slice(1) : 'overview';
  for (const a of document.querySelectorAll('nav a')) {
    if (a.hash === '#' + name) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  view?.stop?.();
  main.replaceChildren();
  document.title = 'holdfastd: ' + name;
  view = views[name].show(main, fail);
  if (last) view.update?.(last);
}

// fail shows an error; one of the token asks for it.
export function fail(error) {
  if (error.name === 'AbortError') return;
  if (error instanceof CallError && error.code === 'unauthenticated') {
    askToken();
    return;
  }
  live.className = 'bad';
  live.textContent = error.message;
}

function askToken() {
  if (document.getElementById('token')) return;
  const input = el('input', { id: 'token', type: 'password', autocomplete: 'off', required: true });
  const form = el('form', { class: 'panel', onsubmit: (e) => {
    e.preventDefault();
    setToken(input.value.trim());
    location.reload();
  } }, el('h2', {}, 'This page needs a token'), el('p', {}, 'holdfastd page prints an address that has it.'),
  el('p', { class: 'tools' }, el('label', { for: 'token' }, 'Token'), input, el('button', {}, 'Use it')));
  main.replaceChildren(form);
  input.focus();
  live.textContent = '';
}

// watch follows the daemon, for ever.
async function watch() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
    try {
      await stream('Storage/Watch', { interval: '1s' }, (got) => {
        wait = 500;
        last = got;
        const s = got.status;
        document.getElementById('store').textContent = `${s.root} · ${s.driver} · ${s.version}`;
        live.className = 'good';
        live.textContent = num(s.stepsRunning) ? `${s.stepsRunning} running` : 'live';
        view?.update?.(got);
      });
    } catch (error) {
      fail(error);
      if (error instanceof CallError && error.code === 'unauthenticated') return;
      live.className = 'bad';
      live.textContent = 'the daemon does not answer; trying again';
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

addEventListener('hashchange', () => {
  show();
  main.focus();
});
addEventListener('keydown', (e) => {
  if (e.target.matches('input, select, textarea') || e.ctrlKey || e.metaKey || e.altKey) return;
  const names = Object.keys(views);
  if (e.key >= '1' && e.key <= String(names.length)) location.hash = names[e.key - 1];
  if (e.key === '/') {
    e.preventDefault();
    if (location.hash !== '#snapshots') location.hash = 'snapshots';
    setTimeout(() => document.querySelector('input[type=search]')?.focus());
  }
});
show();
watch();
