import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { notified } from '../jupyterlab.js';
import { Work } from '../../lib/kernel/work.js';

globalThis.MutationObserver = class {
  observe() {}
};
globalThis.document = { title: '', hidden: false, addEventListener() {}, querySelector: () => null };
const { callAttention } = await import('../../lib/agents/attention.js');
const { offerToLoad } = await import('../../lib/agents/loading.js');

test('of questions one after the other no notification stays when all are answered', () => {
  const work = new Work();
  callAttention(work, () => {});
  const panel = { id: 'p', isVisible: false, context: { path: 'a.ipynb' } };
  const counts = [1, 2, 1, 0].map(questions => {
    work.show(panel, { cell: 'a', questions, elapsed: 0, doing: 'Waits' });
    return notified.size;
  });
  assert.deepEqual(counts, [1, 1, 1, 0]);
});

test('a notebook that is closed offers nothing any more', () => {
  const panel = { isDisposed: false };
  panel.disposed = new Signal(panel);
  panel.sessionContext = { iopubMessage: new Signal(panel) };
  offerToLoad({}, panel);
  const content = { text: 'UsageError: Cell magic `%%agent` not found.' };
  const fail = () => panel.sessionContext.iopubMessage.emit({ header: { msg_type: 'stream' }, content });
  fail();
  assert.equal(notified.size, 1);
  panel.disposed.emit();
  fail(); // in another view of it
  assert.equal(notified.size, 0);
});
