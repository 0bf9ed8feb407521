import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MessageLoop } from '@lumino/messaging';

import '../jupyterlab.js';

/** An element as far as the panel fills it. */
class Element {
  children = [];
  classList = { add() {}, remove() {}, toggle() {}, contains: () => false };
  dataset = {};
  heard = {};
  value = '';

  get childElementCount() {
    return this.children.length;
  }

  append(...children) {
    this.children.push(...children);
    children.forEach(child => (child.parentElement = this));
  }

  addEventListener(type, act) {
    this.heard[type] = act;
  }

  setAttribute() {}

  contains() {
    return false;
  }

  querySelectorAll() {
    return [];
  }
}

globalThis.Element = globalThis.DragEvent = Element;
globalThis.navigator ??= { platform: '' };
/** What timers would do, in place of them: one that is left would keep the test from its end. */
const due = [];
globalThis.setTimeout = act => due.push(act);
globalThis.setInterval = () => 0;
globalThis.document = { createElement: () => new Element() };
const { Widget } = await import('@lumino/widgets');
const { Around } = await import('../../lib/kernel/around.js');
const { AgentsPanel } = await import('../../lib/agents/panel.js');

/** A panel that is seen, with one notebook that runs lines when it is told so. */
function shown() {
  const around = new Around();
  const said = [];
  const line = { kernel: { id: 'k' }, send: data => said.push(data.words) };
  line.run = () => new Promise(resolve => (line.end = resolve));
  around.add({ line, path: 'a.ipynb', panel: null });
  const looks = [];
  const panel = new AgentsPanel(around, { current: () => null, look: looking => looks.push(looking) });
  const send = message => MessageLoop.sendMessage(panel, Widget.Msg[message]);
  send('AfterAttach');
  return { around, line, looks, panel, said, send };
}

test('a panel that is hidden has no kernel watched, whatever was under way', async () => {
  const { around, line, panel, said } = shown();
  panel._search.heard.input(); // the person typed a word
  const run = panel._run(around.places[0], 'sessions pin x');
  panel.hide();
  due.forEach(act => act());
  line.end('');
  await run;
  assert.deepEqual(said, ['', null]);
});

test('a panel that is taken to the other side, where it is not seen, looks no more', () => {
  const { looks, said, send } = shown();
  send('BeforeDetach');
  send('AfterDetach');
  assert.deepEqual([looks, said.at(-1)], [[true, false], null]);
});

test('a question whose answer could not be sent can be answered again', () => {
  const { around, line, panel } = shown();
  const question = { id: 'q', place: around.places[0] };
  const sent = [false, true].map(isOpen => {
    line.send = () => isOpen;
    panel._answer(question, 'approve', { getAttribute: () => null });
    return panel._answered.has('q');
  });
  assert.deepEqual(sent, [false, true]);
});
