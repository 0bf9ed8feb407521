/** What a saved item may hold, and the one place where foreign JSON becomes a typed item. */

import { showHidden, showInvisible } from '../text/plain.js';

export const MIME_TYPE = 'application/vnd.agent-magics.item+json';
export const VERSION = 1;

export type Status = 'running' | 'completed' | 'failed' | 'denied';
export type StepStatus = 'pending' | 'in_progress' | 'completed';

/** A page that an answer cites, or, without an address, a file. */
export interface Source {
  title: string;
  url: string;
}

export interface TextItem {
  kind: 'text';
  text: string;
  sources: Source[];
}

/** What the model thought before it spoke; of much of it, the end. */
export interface ReasoningItem {
  kind: 'reasoning';
  text: string;
  leftOut: number;
}

export interface NoticeItem {
  kind: 'notice';
  level: 'info' | 'warning' | 'error';
  text: string;
}

export interface ToolItem {
  kind: 'tool' | 'patch';
  name: string;
  title: string;
  status: Status;
  arguments: string;
  language: string;
  output: string;
  exitCode: number | null;
  note: string;
  /** Unified diff; only a patch has one. */
  diff: string;
  /** The record of a sub-agent at work, by which it is stopped; not in a finished item. */
  stop: string;
}

/** One file that a turn changed; counts are null where lines cannot be counted. */
export interface ChangedFile {
  path: string;
  change: 'added' | 'changed' | 'removed';
  added: number | null;
  removed: number | null;
  note: string;
}

/** What a turn changed in files, and which of those run by themselves. */
export interface ChangesItem {
  kind: 'changes';
  files: ChangedFile[];
  /** Unified diff; empty where a patch shows it already. */
  diff: string;
  runs: string[];
  notes: string[];
}

export interface PlanItem {
  kind: 'plan';
  steps: { description: string; status: StepStatus }[];
  explanation: string;
}

export interface UsageItem {
  kind: 'usage';
  inputTokens: number;
  outputTokens: number;
  cachedTokens: number;
  reasoningTokens: number;
  requests: number;
  cost: string;
}

/** Words for a picture, which stands beside the item in the same output. */
export interface PictureItem {
  kind: 'picture';
  alt: string;
}

/** A value of a table; what is no number and no truth value came as text. */
export type Cell = string | number | boolean | null;

/** The first rows of a table that live code displayed. */
export interface TableItem {
  kind: 'table';
  columns: { name: string; type: string }[];
  rows: Cell[][];
  /** Rows and columns of the whole table, without an index, whose columns stand first. */
  total: number;
  width: number;
}

/** Finished calls, and a line that counts them. */
export interface GroupItem {
  kind: 'group';
  title: string;
  items: Item[];
}

export interface BlockItem {
  kind: 'block';
  items: Item[];
}

/** Something a newer version wrote, or nothing of ours: shown as it is. */
export interface UnknownItem {
  kind: 'unknown';
  data: unknown;
}

export type Item =
  | TextItem
  | ReasoningItem
  | NoticeItem
  | ToolItem
  | ChangesItem
  | PlanItem
  | UsageItem
  | PictureItem
  | TableItem
  | GroupItem
  | BlockItem
  | UnknownItem;

type Fields = Record<string, unknown>;

const WEB_PAGE = /^https?:\/\/[^\s@\\]+$/i;

/** How deep items stand in items: a block holds groups, a group holds calls. */
export const MOST_DEPTH = 8;

/** Read `data` as an item; whatever does not fit becomes an `UnknownItem`, never an exception. */
export function parseItem(data: unknown, depth = 0): Item {
  if (depth > MOST_DEPTH) {
    return { kind: 'unknown', data: '…' };
  }
  if (!isFields(data) || data.version !== VERSION) {
    return { kind: 'unknown', data };
  }
  switch (data.kind) {
    case 'text':
      return {
        kind: 'text',
        text: text(data.text),
        sources: list(data.sources).filter(isFields).map(parseSource)
      };
    case 'reasoning':
      return { kind: 'reasoning', text: text(data.text), leftOut: count(data.left_out) };
    case 'notice':
      return {
        kind: 'notice',
        level: oneOf(data.level, ['info', 'warning', 'error'], 'info'),
        text: prose(data.text)
      };
    case 'tool':
    case 'patch':
      return parseTool(data.kind, data);
    case 'changes':
      return {
        kind: 'changes',
        files: list(data.files).filter(isFields).map(parseFile),
        diff: text(data.diff),
        runs: list(data.runs).map(words),
        notes: list(data.notes).map(prose)
      };
    case 'plan':
      return {
        kind: 'plan',
        steps: list(data.steps).filter(isFields).map(parseStep),
        explanation: prose(data.explanation)
      };
    case 'usage':
      return {
        kind: 'usage',
        inputTokens: count(data.input_tokens),
        outputTokens: count(data.output_tokens),
        cachedTokens: count(data.cached_tokens),
        reasoningTokens: count(data.reasoning_tokens),
        requests: count(data.requests),
        cost: words(data.cost)
      };
    case 'picture':
      return { kind: 'picture', alt: text(data.alt) };
    case 'table':
      return {
        kind: 'table',
        columns: list(data.columns)
          .filter(isFields)
          .map(column => ({ name: text(column.name), type: text(column.type) })),
        rows: list(data.rows).map(row => list(row).map(parseCell)),
        total: count(data.total),
        width: count(data.width)
      };
    case 'group':
      return { kind: 'group', title: words(data.title), items: parseItems(data.items, depth) };
    case 'block':
      return { kind: 'block', items: parseItems(data.items, depth) };
    default:
      return { kind: 'unknown', data };
  }
}

function parseItems(data: unknown, depth: number): Item[] {
  return list(data).map(item => parseItem(item, depth + 1));
}

function parseTool(kind: 'tool' | 'patch', data: Fields): ToolItem {
  return {
    kind,
    name: words(data.name),
    title: words(data.title),
    status: oneOf(data.status, ['running', 'completed', 'failed', 'denied'], 'completed'),
    arguments: text(data.arguments),
    language: text(data.language),
    output: text(data.output),
    exitCode: typeof data.exit_code === 'number' ? data.exit_code : null,
    note: words(data.note),
    diff: text(data.diff),
    stop: text(data.stop)
  };
}

/** Only the address of a web page is kept as one; anything else that it could be is dropped. */
function parseSource(source: Fields): Source {
  const url = text(source.url);
  return { title: text(source.title), url: WEB_PAGE.test(url) ? url : '' };
}

function parseFile(file: Fields): ChangedFile {
  return {
    path: words(file.path),
    change: oneOf(file.change, ['added', 'changed', 'removed'], 'changed'),
    added: typeof file.added === 'number' ? file.added : null,
    removed: typeof file.removed === 'number' ? file.removed : null,
    note: words(file.note)
  };
}

function parseStep(step: Fields): PlanItem['steps'][number] {
  return {
    description: prose(step.description),
    status: oneOf(step.status, ['pending', 'in_progress', 'completed'], 'pending')
  };
}

function parseCell(value: unknown): Cell {
  return typeof value === 'number' || typeof value === 'boolean' || value == null
    ? (value ?? null)
    : text(value);
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : value == null ? '' : asJson(value);
}

/** Text that is shown as it is: what would be drawn as nothing, or turn it around, is written out. */
function words(value: unknown): string {
  return showInvisible(text(value));
}

/** The same of sentences. */
function prose(value: unknown): string {
  return showHidden(text(value));
}

/** A value as JSON text; "…" where it is nested too deeply. */
export function asJson(value: unknown, indent = 0): string {
  try {
    return JSON.stringify(value, null, indent) ?? '';
  } catch {
    return '…';
  }
}

function count(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}

function oneOf<T extends string>(value: unknown, known: readonly T[], otherwise: T): T {
  return known.includes(value as T) ? (value as T) : otherwise;
}
