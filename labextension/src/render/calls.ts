/** Draws calls of tools: what was asked for, and what came out. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { drawPre, fold, make, makeButton } from '../page/elements.js';
import { codeOf, countLines, fenced, prettyArguments, scriptOf, showInvisible } from '../text/plain.js';
import { trans } from '../text/translation.js';
import { drawDiff, OPEN_DIFF_LINES } from './changes.js';
import { colouredRuns, styleOf, type Run } from './colours.js';
import type { Status, ToolItem } from './items.js';
import { drawMarkdown } from './markdown.js';

/** Longer outputs start folded, so that a turn can be read at a glance. */
const OPEN_LINES = 15;
const OPEN_CODE_LINES = 25;
/** A command of more characters may not be whole in the head of its call. */
const HEAD_LENGTH = 60;

const STATUS_WORDS: Record<Status, () => string> = {
  running: () => trans.__('running'),
  completed: () => trans.__('ran'),
  failed: () => trans.__('failed'),
  denied: () => trans.__('not run')
};
export const STATUS_ICONS: Record<Status, string> = {
  running: '…',
  completed: '✓',
  failed: '✗',
  denied: '⊘'
};

/** How the Stop button of a sub-agent's row tells that it was pressed. */
export const STOP_AGENT = 'agent-magics-stop-agent';

export async function drawTool(
  item: ToolItem,
  options: IRenderMime.IRendererOptions,
  key: string
): Promise<HTMLElement> {
  const output = colouredRuns(item.output);
  const body = make('div', 'am-body');
  const parts = item.language === 'python' ? codeOf(item.arguments) : null;
  const code = parts?.code ?? null;
  if (code !== null) {
    const shown = await drawMarkdown(fenced(showInvisible(code.trimEnd()), 'python'), options);
    shown.classList.add('am-code');
    body.append(shown);
  }
  const script = item.language === 'bash' ? scriptOf(item.arguments).trim() : '';
  const isLong = script.length > HEAD_LENGTH || script.includes('\n');
  if (isLong) {
    const pre = drawPre(showInvisible(script), trans.__('Command of %1', item.name));
    pre.classList.add('am-command');
    body.append(pre);
  }
  if (item.diff !== '') {
    body.append(drawDiff(item.diff));
    if (output.length > 0) {
      body.append(fold(`${key}.output`, trans.__('Output'), drawOutput(output, item.name)));
    }
  } else if (output.length > 0) {
    body.append(drawOutput(output, item.name));
  } else if (item.status !== 'denied' && code === null) {
    body.append(make('div', 'am-empty', item.status === 'running' ? trans.__('Running') : trans.__('No output')));
  }
  const others = parts?.rest ?? item.arguments;
  if (others !== '') {
    const shown = showInvisible(prettyArguments(others));
    const pre = drawPre(shown, trans.__('Arguments of %1', item.name));
    body.append(fold(`${key}.arguments`, trans.__('Arguments'), pre));
  }
  // The next call may take over this one's output, but not what the person did with its card.
  const call = `${key} ${item.name} ${item.arguments.slice(0, 200)}`;
  const card = fold(call, drawHead(item), body, startsOpen(item, output, code));
  card.classList.add('am-card', `am-${item.status}`);
  card.classList.toggle('am-shows-code', code !== null || isLong); // whole, so not in its head
  const status = STATUS_WORDS[item.status]();
  card.setAttribute('aria-label', trans.__('Tool %1, %2: %3', item.name, status, item.title));
  return item.status === 'running' && item.stop !== '' ? withStop(card, item) : card;
}

/** A sub-agent's row with its button; a page without a line to the kernel hides it. */
function withStop(card: HTMLElement, item: ToolItem): HTMLElement {
  const stop = makeButton(trans.__('Stop'), item.name, () => {
    stop.dispatchEvent(new CustomEvent(STOP_AGENT, { bubbles: true, detail: item.stop }));
  });
  stop.classList.add('am-stop');
  const row = make('div', 'am-row');
  row.append(card, stop);
  return row;
}

function drawHead(item: ToolItem): HTMLElement[] {
  const icon = make('span', 'am-icon', STATUS_ICONS[item.status]);
  icon.setAttribute('aria-hidden', 'true');
  const status = make('span', 'am-status');
  status.append(icon, ` ${STATUS_WORDS[item.status]()}`);
  const facts = [];
  if (item.exitCode !== null && item.exitCode !== 0) {
    facts.push(trans.__('exit %1', item.exitCode));
  }
  if (item.note !== '') {
    facts.push(item.note);
  }
  const title = make('code', 'am-title', item.title);
  title.title = item.title;
  return [
    status,
    make('span', 'am-name', item.name),
    title,
    make('span', 'am-facts', facts.join(' · '))
  ];
}

function startsOpen(item: ToolItem, output: Run[], code: string | null): boolean {
  if (item.status !== 'completed') {
    return true;
  }
  if (item.diff !== '') {
    return countLines(item.diff) <= OPEN_DIFF_LINES;
  }
  if (code !== null && countLines(code) > OPEN_CODE_LINES) {
    return false;
  }
  const lines = countLines(output.map(run => run.text).join(''));
  return (output.length > 0 || code !== null) && lines <= OPEN_LINES;
}

/** A command's output in its colours; foreign text becomes nothing but text. */
function drawOutput(runs: Run[], name: string): HTMLElement {
  const pre = drawPre('', trans.__('Output of %1', name));
  for (const { text, look } of runs) {
    const { names, colour, background } = styleOf(look);
    const span = make('span', names.join(' '), text);
    span.style.setProperty('--am-fg', colour);
    span.style.backgroundColor = background;
    pre.append(span);
  }
  return pre;
}
