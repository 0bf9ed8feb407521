import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Element } from '../dom.js';
import { Feet } from '../../lib/notebook/foot.js';

const DATA = { cell: 'a', doing: '', phase: 0, call: null, elapsed: 0, tokens: 0, said: [], queued: [] };

/** A cell with an agent at work, and what its questions were answered. */
function atWork() {
  const cell = { model: { id: 'a' }, node: new Element('div') };
  const feet = new Feet({ content: { widgets: [cell] } }, () => {});
  const answers = [];
  const ask = (name, danger = '') => {
    const question = new Element('div');
    question.className = `agm-question ${danger}`;
    for (const decision of ['approve', 'deny']) {
      const button = new Element('button');
      button.dataset.decision = decision;
      button.addEventListener('click', () => {
        answers.push(`${decision} ${name}`);
        question.dataset.answered = 'true';
      });
      question.append(button);
    }
    cell.node.append(question);
    return question;
  };
  const press = label => {
    const buttons = cell.node.querySelectorAll('button');
    buttons.find(({ textContent }) => textContent === label).click();
  };
  const show = () => feet.show(DATA);
  show();
  return { answers, ask, cell, feet, press, show };
}

test('one button answers those questions that it counts, and none that has come since', t => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  for (const [label, expected] of [
    ['Approve all 2', ['approve first', 'approve second']],
    ['Deny all 3', ['deny first', 'deny second', 'deny danger']]
  ]) {
    const { answers, ask, press, show } = atWork();
    ['first', 'second'].forEach(name => ask(name));
    ask('danger', 'agm-dangerous');
    show();
    ask('new');
    press(label);
    assert.deepEqual(answers, expected);
  }
});

test('a question that was answered meanwhile is not answered again', t => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { answers, ask, press, show } = atWork();
  const first = ask('first');
  ask('second');
  show();
  first.dataset.answered = 'true';
  press('Approve all 2');
  assert.deepEqual(answers, ['approve second']);
});

test('the line of a cell that is moved comes along, though the kernel says nothing meanwhile', t => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { cell, feet } = atWork();
  cell.node = new Element('div'); // JupyterLab draws it anew
  feet.place();
  assert.equal(cell.node.querySelectorAll('.am-foot').length, 1);
});
