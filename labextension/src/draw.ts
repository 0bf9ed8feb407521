/** Items to DOM: every piece of foreign text is set as text, only Markdown goes its own way. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import type {
  ChangedFile,
  ChangesItem,
  GroupItem,
  Item,
  NoticeItem,
  PictureItem,
  PlanItem,
  ReasoningItem,
  Source,
  Status,
  StepStatus,
  TextItem,
  ToolItem,
  UnknownItem,
  UsageItem
} from './items.js';
import { asJson } from './items.js';
import { colouredRuns, styleOf, type Run } from './colours.js';
import { keepKeys, make, makeButton } from './elements.js';
import { drawMarkdown } from './markdown.js';
import {
  PICTURES,
  codeOf,
  countFiles,
  countLines,
  diffLines,
  fenced,
  numeral,
  prettyArguments,
  showInvisible
} from './plain.js';
import { drawTable } from './table.js';
import { trans } from './translation.js';

/** Longer outputs start folded, so that a turn can be read at a glance. */
const OPEN_LINES = 15;
const OPEN_DIFF_LINES = 40;
const OPEN_CODE_LINES = 25;

const STATUS_WORDS: Record<Status, () => string> = {
  running: () => trans.__('running'),
  completed: () => trans.__('ran'),
  failed: () => trans.__('failed'),
  denied: () => trans.__('not run')
};
const STATUS_ICONS: Record<Status, string> = {
  running: '…',
  completed: '✓',
  failed: '✗',
  denied: '⊘'
};
const STEP_ICONS: Record<StepStatus, string> = {
  pending: '☐',
  in_progress: '◐',
  completed: '☑'
};
const STEP_WORDS: Record<StepStatus, () => string> = {
  pending: () => trans.__('to do'),
  in_progress: () => trans.__('in progress'),
  completed: () => trans.__('done')
};
const CHANGE_WORDS: Record<ChangedFile['change'], () => string> = {
  added: () => trans.__('added'),
  changed: () => trans.__('changed'),
  removed: () => trans.__('removed')
};

/** How a block of changed files tells that it stands in the page, where it can be reviewed. */
export const CHANGES = 'agent-magics-changes';

/** How the Stop button of a sub-agent's row tells that it was pressed. */
export const STOP_AGENT = 'agent-magics-stop-agent';

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

async function drawText(
  item: TextItem,
  options: IRenderMime.IRendererOptions
): Promise<HTMLElement> {
  const words = await drawMarkdown(item.text, options);
  if (item.sources.length === 0) {
    return words;
  }
  const answer = make('div', 'am-answer');
  answer.append(words, drawSources(item.sources));
  return answer;
}

async function drawReasoning(
  item: ReasoningItem,
  options: IRenderMime.IRendererOptions,
  key: string
): Promise<HTMLElement> {
  const body = make('div', 'am-body');
  if (item.leftOut > 0) {
    body.append(make('div', 'am-empty', trans.__('… %1 characters left out …', numeral(item.leftOut))));
  }
  body.append(await drawMarkdown(item.text, options));
  const card = fold(key, trans.__('Thinking'), body);
  card.classList.add('am-thoughts');
  return card;
}

function drawSources(sources: Source[]): HTMLElement {
  const box = make('div', 'am-sources');
  const items = make('ul', '');
  for (const { title, url } of sources) {
    const line = make('li', '');
    const words = showInvisible(title);
    if (url === '') {
      line.textContent = words;
    } else {
      const link = make('a', '', words || url);
      link.href = link.title = url;
      link.target = '_blank';
      link.rel = 'noopener noreferrer';
      line.append(link);
    }
    items.append(line);
  }
  box.append(make('div', 'am-sources-head', trans.__('Sources')), items);
  return box;
}

function drawNotice(item: NoticeItem): HTMLElement {
  const level = {
    info: trans.__('Note'),
    warning: trans.__('Warning'),
    error: trans.__('Error')
  }[item.level];
  const notice = make('div', `am-notice am-${item.level}`);
  notice.setAttribute('role', 'note');
  const words = make('span', '');
  words.dir = 'auto';
  const pieces = item.text.split(/`([^`\n]+)`/);
  words.append(...pieces.map((piece, index) => (index % 2 ? make('code', '', piece) : piece)));
  notice.append(make('strong', '', `${level}: `), words);
  return notice;
}

async function drawTool(
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
  keepKeys(stop);
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
  return [
    status,
    make('span', 'am-name', item.name),
    make('code', 'am-title', item.title),
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

export function drawDiff(diff: string, label = trans.__('Changes')): HTMLElement {
  const pre = drawPre('', label);
  pre.classList.add('am-diff');
  const tags = { add: 'ins', remove: 'del', head: 'span', same: 'span' } as const;
  for (const line of diffLines(diff)) {
    pre.append(make(tags[line.kind], `am-${line.kind}`, `${showInvisible(line.text)}\n`));
  }
  return pre;
}

function drawChanges(item: ChangesItem, key: string): HTMLElement {
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

function drawPlan(item: PlanItem): HTMLElement {
  const done = item.steps.filter(step => step.status === 'completed').length;
  const plan = make('div', 'am-plan');
  plan.setAttribute('role', 'group');
  plan.setAttribute('aria-label', trans.__('Plan, %1 of %2 steps done', done, item.steps.length));
  plan.append(
    make('div', 'am-plan-head', trans.__('Plan · %1 of %2 done', done, item.steps.length))
  );
  if (item.explanation !== '') {
    const why = make('div', 'am-plan-why', item.explanation);
    why.dir = 'auto';
    plan.append(why);
  }
  const steps = make('ul', 'am-steps');
  for (const step of item.steps) {
    const line = make('li', `am-${step.status}`);
    const icon = make('span', 'am-icon', STEP_ICONS[step.status]);
    icon.setAttribute('role', 'img');
    icon.setAttribute('aria-label', STEP_WORDS[step.status]());
    const words = make('span', '', step.description);
    words.dir = 'auto';
    line.append(icon, words);
    if (step.status === 'in_progress') {
      line.setAttribute('aria-current', 'step');
    }
    steps.append(line);
  }
  plan.append(steps);
  return plan;
}

function drawUsage(item: UsageItem): HTMLElement {
  const part = (count: number, words: string): string => (count > 0 ? ` (${words})` : '');
  const cached = trans.__('%1 cached', numeral(item.cachedTokens));
  const reasoning = trans.__('%1 reasoning', numeral(item.reasoningTokens));
  const facts = [
    trans.__('%1 tokens in', numeral(item.inputTokens)) + part(item.cachedTokens, cached),
    trans.__('%1 out', numeral(item.outputTokens)) + part(item.reasoningTokens, reasoning),
    trans._n('%2 request', '%2 requests', item.requests, numeral(item.requests)),
    item.cost
  ];
  return make('div', 'am-usage', facts.filter(fact => fact !== '').join(' · '));
}

/** JupyterLab's own drawing of a picture leaves out the words for who cannot see it. */
function drawPicture(item: PictureItem, data: IRenderMime.IMimeModel['data']): HTMLElement {
  const words = showInvisible(item.alt);
  const type = PICTURES.find(type => typeof data[type] === 'string');
  if (type === undefined) {
    return make('div', 'am-empty', `[${words}]`);
  }
  const picture = make('img', 'am-picture');
  picture.src = `data:${type};base64,${data[type]}`;
  picture.alt = words;
  return picture;
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

function drawPre(text: string, label: string): HTMLElement {
  const pre = make('pre', 'am-pre', text);
  // Long ones scroll; the keyboard can only scroll what can be focused.
  pre.tabIndex = 0;
  pre.setAttribute('role', 'group');
  pre.setAttribute('aria-label', label);
  return pre;
}

function fold(
  key: string,
  head: string | HTMLElement[],
  body: HTMLElement,
  open = false
): HTMLDetailsElement {
  const details = make('details', '');
  details.dataset.key = key;
  details.dataset.initial = String(open);
  details.open = open;
  const summary = make('summary', '');
  summary.append(...head);
  details.append(summary, body);
  return details;
}
