/** Items to DOM: every piece of foreign text is set as text, only Markdown goes its own way. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { drawPre, fold, make } from '../page/elements.js';
import { showInvisible } from '../text/plain.js';
import { trans } from '../text/translation.js';
import { drawNotice, drawPicture, drawPlan, drawReasoning, drawText, drawUsage } from './answers.js';
import { drawTool, STATUS_ICONS } from './calls.js';
import { drawChanges } from './changes.js';
import { asJson, type GroupItem, type Item, type UnknownItem } from './items.js';
import { drawTable } from './table.js';

/**
 * Draw one item.
 *
 * @param key - place of the item in its output; the same after an update, so that a fold the
 *   person opened stays open.
 * @param data - what else the output holds.
 */
export async function drawItem(
  item: Item,
  options: IRenderMime.IRendererOptions,
  key = '0',
  data: IRenderMime.IMimeModel['data'] = {}
): Promise<HTMLElement> {
  switch (item.kind) {
    case 'text':
      return drawText(item, options);
    case 'reasoning':
      return drawReasoning(item, options, key);
    case 'notice':
      return drawNotice(item);
    case 'tool':
    case 'patch':
      return drawTool(item, options, key);
    case 'changes':
      return drawChanges(item, key);
    case 'plan':
      return drawPlan(item);
    case 'usage':
      return drawUsage(item);
    case 'picture':
      return drawPicture(item, data);
    case 'table':
      return drawTable(item);
    case 'group':
      return drawGroup(item, options, key);
    case 'block':
      return drawBlock(item.items, options, key);
    case 'unknown':
      return drawUnknown(item);
  }
}

async function drawBlock(
  items: Item[],
  options: IRenderMime.IRendererOptions,
  key: string
): Promise<HTMLElement> {
  const block = make('div', 'am-block');
  const parts = items.map((part, index) => drawItem(part, options, `${key}.${index}`));
  block.append(...(await Promise.all(parts)));
  return block;
}

/** What stands in groups that nobody has unfolded yet. */
const folded = new WeakMap<HTMLElement, () => Promise<void>>();

/** Finished calls under one line; they are drawn when somebody unfolds it, since most stay folded. */
function drawGroup(
  item: GroupItem,
  options: IRenderMime.IRendererOptions,
  key: string
): HTMLElement {
  const { title } = item;
  const body = make('div', 'am-body');
  const icon = make('span', 'am-icon', STATUS_ICONS.completed);
  icon.setAttribute('aria-hidden', 'true');
  const group = fold(`${key}.group`, [icon, make('span', 'am-name', title)], body);
  group.classList.add('am-group');
  group.setAttribute('aria-label', trans.__('Finished: %1', title));
  folded.set(group, async () => {
    body.append(await drawBlock(item.items, options, `${key}.group`));
  });
  group.addEventListener('toggle', () => void unfold(group));
  return group;
}

/** Draw what stands in an open group, once. */
export async function unfold(group: HTMLDetailsElement): Promise<void> {
  const draw = folded.get(group);
  if (group.open && draw !== undefined) {
    folded.delete(group);
    await draw();
  }
}

function drawUnknown(item: UnknownItem): HTMLElement {
  const box = make('div', 'am-unknown');
  box.append(
    make(
      'div',
      'am-empty',
      trans.__('Written by another version of agent-magics; shown as it is.')
    ),
    drawPre(showInvisible(asJson(item.data, 2)), trans.__('Unknown item'))
  );
  return box;
}
