/** Draws what a turn changed in files. */

import { drawPre, fold, make } from '../page/elements.js';
import { countFiles, countLines, diffLines, numeral, showInvisible } from '../text/plain.js';
import { trans } from '../text/translation.js';
import { drawNotice } from './answers.js';
import type { ChangedFile, ChangesItem } from './items.js';

/** Longer diffs start folded. */
export const OPEN_DIFF_LINES = 40;

const CHANGE_WORDS: Record<ChangedFile['change'], () => string> = {
  added: () => trans.__('added'),
  changed: () => trans.__('changed'),
  removed: () => trans.__('removed')
};

/** How a block of changed files tells that it stands in the page, where it can be reviewed. */
export const CHANGES = 'agent-magics-changes';

export function drawDiff(diff: string, label = trans.__('Changes')): HTMLElement {
  const pre = drawPre('', label);
  pre.classList.add('am-diff');
  const tags = { add: 'ins', remove: 'del', head: 'span', same: 'span' } as const;
  for (const line of diffLines(diff)) {
    pre.append(make(tags[line.kind], `am-${line.kind}`, `${showInvisible(line.text)}\n`));
  }
  return pre;
}

export function drawChanges(item: ChangesItem, key: string): HTMLElement {
  const changes = make('div', 'am-plan am-changes');
  changes.setAttribute('role', 'group');
  const count = trans.__('%1 changed', countFiles(item.files.map(file => file.path)));
  changes.setAttribute('aria-label', count);
  changes.append(make('div', 'am-plan-head', count));
  const files = make('ul', 'am-steps');
  for (const file of item.files) {
    const line = make('li', '');
    line.append(make('code', '', file.path), ` ${fileFacts(file)}`);
    files.append(line);
  }
  changes.append(files);
  for (const words of item.runs) {
    changes.append(drawNotice({ kind: 'notice', level: 'warning', text: words }));
  }
  for (const words of item.notes) {
    changes.append(drawNotice({ kind: 'notice', level: 'info', text: words }));
  }
  if (item.diff !== '') {
    const open = countLines(item.diff) <= OPEN_DIFF_LINES;
    changes.append(fold(`${key}.diff`, trans.__('Diff'), drawDiff(item.diff), open));
  }
  return changes;
}

function fileFacts(file: ChangedFile): string {
  const counts =
    file.added === null || file.removed === null
      ? trans.__('lines not counted')
      : `+${numeral(file.added)} −${numeral(file.removed)}`;
  const words = file.path.endsWith('/') ? [] : [counts];
  if (file.change !== 'changed') {
    words.push(CHANGE_WORDS[file.change]());
  }
  if (file.note !== '' && file.note !== 'folder') {
    words.push(file.note);
  }
  return words.join(', ');
}
