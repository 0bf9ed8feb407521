/** What the kernels tell of their agents while somebody looks: questions, work, conversations. */

import type { Json, NotebookPanel } from '@jupyterlab/notebook';
import { Signal, type ISignal } from '@lumino/signaling';

import { showHidden } from '../text/plain.js';
import type { Line } from './line.js';

export interface AgentData {
  name: string;
  model: string;
  doing: string;
  /** The cell at work, "" for none. */
  cell: string;
  background: boolean;
  conversation: string;
  turns: number;
  cost: number | null;
  can_fork: boolean;
}

export interface QuestionData {
  id: string;
  agent: string;
  cell: string;
  tool: string;
  target: string;
  arguments: string;
  ending: string;
  reason: string;
  dangerous: boolean;
  choices: { decision: string; label: string; covers: string }[];
}

/** A sub-agent, a command that goes on, or a server. */
export interface HelperData {
  kind: 'agent' | 'command' | 'server';
  name: string;
  state: string;
  of: string;
}

export interface ConversationData {
  id: string;
  title: string;
  notebook: string;
  /** Seconds since the epoch. */
  ended: number;
  turns: number;
  cost: number;
  end: string;
  pinned: boolean;
}

/** What one kernel tells; `conversations` are those that have the words looked for. */
export interface Overview {
  agents: AgentData[];
  questions: QuestionData[];
  helpers: HelperData[];
  conversations: ConversationData[];
  more: number;
  /** USD of all conversations on this day; what no price is known of does not count. */
  today: number;
}

/** Milliseconds after which kernels are asked again, which else take the page for crashed. */
const AGAIN = 60_000;

/** A notebook whose kernel has agents; `panel` is null where this page does not show it. */
export interface Place {
  line: Line;
  path: string;
  panel: NotebookPanel | null;
}

/** Of one notebook each thing that is shown. */
export type Placed<T> = T & { place: Place };

export class Around {
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The notebooks, the first connected first. */
  get places(): Place[] {
    return [...this._places.values()];
  }

  add(place: Place): void {
    this._places.set(place.line, place);
    if (this._words !== null) {
      this._ask(place);
    }
    this._changed.emit();
  }

  remove(line: Line): void {
    if (this._places.delete(line)) {
      this._told.delete(line);
      this._changed.emit();
    }
  }

  show(line: Line, data: object): void {
    if (this._places.has(line)) {
      this._told.set(line, data as Overview);
      this._changed.emit();
    }
  }

  /** Have the kernels tell of their agents from now on; null: no more. */
  watch(words: string | null): void {
    const before = this._words;
    this._words = words;
    const ask = (): void => this.places.forEach(place => this._ask(place));
    if (before !== null || words !== null) {
      ask(); // also those that were asked and have not told anything yet
    }
    clearInterval(this._asking);
    this._asking = words === null ? undefined : setInterval(ask, AGAIN);
  }

  /** Those at work first. */
  get agents(): Placed<AgentData>[] {
    const isAtRest = ({ doing }: AgentData): number => Number(doing === '');
    return this._all(({ agents }) => agents).sort((a, b) => isAtRest(a) - isAtRest(b));
  }

  /** The name of a place's notebook, with its folders where another one is called the same. */
  nameOf({ path }: Place): string {
    const name = nameIn(path);
    const isTaken = this.places.some(other => other.path !== path && nameIn(other.path) === name);
    return showHidden(isTaken ? path : name);
  }

  get questions(): Placed<QuestionData>[] {
    return this._all(({ questions }) => questions);
  }

  get helpers(): Placed<HelperData>[] {
    return this._all(({ helpers }) => helpers);
  }

  /** Those of all kernels, each once: kernels of one person have them in common. */
  get conversations(): ConversationData[] {
    // Kernels that are at rest look seldom: the row that knows most of a conversation is the newest.
    const rows = this._overviews.flatMap(each => each.conversations).sort((a, b) => a.ended - b.ended);
    const newest = [...new Map(rows.map(row => [row.id, row])).values()];
    return newest.sort((a, b) => Number(b.pinned) - Number(a.pinned) || b.ended - a.ended);
  }

  get more(): number {
    return Math.max(0, ...this._overviews.map(({ more }) => more));
  }

  get today(): number {
    return Math.max(0, ...this._overviews.map(({ today }) => today));
  }

  private get _overviews(): Overview[] {
    return [...this._told.values()];
  }

  private _all<T>(part: (overview: Overview) => T[]): Placed<T>[] {
    return [...this._told].flatMap(([line, overview]) => {
      const place = this._places.get(line);
      return place ? part(overview).map(each => ({ ...each, place })) : [];
    });
  }

  private _ask({ line }: Place): void {
    line.send({ type: 'watch', words: this._words as Json });
  }

  private _changed = new Signal<this, void>(this);
  private _places = new Map<Line, Place>();
  private _told = new Map<Line, Overview>();
  private _words: string | null = null;
  private _asking: ReturnType<typeof setInterval> | undefined;
}

function nameIn(path: string): string {
  return path.split('/').pop() ?? path;
}
