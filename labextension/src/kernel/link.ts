/** The line between one open notebook and its kernel, once agent_magics is loaded there. */

import type { Json, Kernel, Message, NotebookPanel } from '@jupyterlab/notebook';
import { UUID } from '@lumino/coreutils';

import { CellMarks } from '../notebook/cell_marks.js';
import { perform, Refusal, Stale, type Wish } from '../notebook/document.js';
import { Follow } from '../notebook/follow.js';
import { Feet, type FootData } from '../notebook/foot.js';
import { Redraw } from '../notebook/redraw.js';
import { Reviews } from '../notebook/review.js';
import { restoreCells } from '../notebook/rewind.js';
import { settleAll } from '../notebook/settle.js';
import type { PageTools } from './api.js';
import type { Around } from './around.js';
import { Line, within } from './line.js';
import type { Work } from './work.js';

const VERSION = 1;
/** The class of a notebook whose kernel hears this page: rows at work can be stopped. */
const LINKED = 'am-linked';
/** Milliseconds for the kernel's answer to a question of the page; a slow machine takes some. */
const ANSWER_LIMIT = 15_000;
/** Milliseconds in which a cell that was moved is back. */
const MOVING = 300;
/** The states of a kernel whose agents are gone. */
export const ENDED = ['restarting', 'autorestarting', 'dead'];
/** What a notebook holds, or a cell that is run, where agent_magics may be loaded. */
export const MENTIONED = /agent_magics|^\s*%{1,2}agent\b/m;

/** What is looked at of a saved output. */
interface SavedOutput {
  metadata?: { agent_magics?: { conversation?: string } };
}

export class Link {
  readonly reviews: Reviews;

  constructor(
    private _panel: NotebookPanel,
    private _kernel: Kernel,
    private _tools: PageTools,
    private _work: Work,
    private _around: Around,
    private _personal: () => { [name: string]: Json }
  ) {
    this._redraw = new Redraw(_panel);
    this._line = new Line(_kernel, () => this._hello());
    this._line.heard.connect(this._hear, this);
    this._feet = new Feet(_panel, data => this._line.send(data));
    this._follow = new Follow(_panel);
    this._marks = new CellMarks(_panel, fields => this.ask('cells', fields) as Promise<object | null>);
    this.reviews = new Reviews(_panel, fields => this.ask('review', fields) as Promise<object | null>);
    _kernel.iopubMessage.connect(this._onMessage, this);
    _kernel.anyMessage.connect(this._onAnyMessage, this);
    _kernel.statusChanged.connect(this._onStatus, this);
    _tools.changed.connect(this._sendTools, this);
    void this._begin();
  }

  get kernelId(): string {
    return this._kernel.id;
  }

  /** Hand over what the person did with a question in this page; false where that cannot be. */
  answer(id: string, content: Json): boolean {
    return this._line.send({ type: 'question', id, content });
  }

  get panel(): NotebookPanel {
    return this._panel;
  }

  /**
   * Ask the kernel something; it answers while it is busy, too.
   *
   * @returns null where agent_magics is not loaded there, or does not answer in time.
   */
  async ask(about: string, fields: { [key: string]: Json }, limit = ANSWER_LIMIT): Promise<Wish | null> {
    if (!this._line.isOpen) {
      return null;
    }
    const id = UUID.uuid4();
    const answer = new Promise<Wish | null>(resolve => this._asked.set(id, resolve));
    this._line.send({ type: 'ask', id, about, ...fields });
    const came = await within(limit, answer);
    this._asked.delete(id);
    return came ? answer : null;
  }

  sendSettings(): void {
    this._line.send({ type: 'settings', values: this._personal() });
  }

  dispose(): void {
    this._isDisposed = true;
    clearTimeout(this._counting);
    this._leave();
    this._kernel.iopubMessage.disconnect(this._onMessage, this);
    this._kernel.anyMessage.disconnect(this._onAnyMessage, this);
    this._kernel.statusChanged.disconnect(this._onStatus, this);
    if (!this._panel.context.isDisposed) {
      this._panel.context.model.cells.changed.disconnect(this._onCells, this);
      this._panel.context.saveState.disconnect(this._onSaved, this);
    }
    this._tools.changed.disconnect(this._sendTools, this);
    this._line.heard.disconnect(this._hear, this);
    this._line.dispose();
  }

  // -- opening: by whom the extension is loaded, the kernel does not say --------------------------

  /** Knock where the notebook is of our kind: its kernel may be running since long. */
  private async _begin(): Promise<void> {
    await this._panel.context.ready;
    if (this._isDisposed) {
      return;
    }
    this._cells = this._cellIds();
    this._panel.context.model.cells.changed.connect(this._onCells, this);
    this._panel.context.saveState.connect(this._onSaved, this);
    if (this._mentions()) {
      await this._line.begin();
    }
  }

  private _mentions(): boolean {
    const { cells } = this._panel.context.model.sharedModel;
    return cells.some(cell => MENTIONED.test(cell.getSource()));
  }

  private _onAnyMessage(_: Kernel, { msg, direction }: { msg: Message; direction: string }): void {
    if (direction !== 'send' || msg.header.msg_type !== 'execute_request') {
      return;
    }
    const id = (msg as Message & { metadata?: { cellId?: string } }).metadata?.cellId;
    if (id !== undefined) {
      this._redraw.end(id);
      this._kept.delete(id);
    }
    if (MENTIONED.test(String(msg.content.code))) {
      // Now, and so behind that cell and in front of the next one, which may be an agent's.
      this._line.knock();
    }
  }

  private _hello(): { [key: string]: Json } {
    return {
      version: VERSION,
      client: this._kernel.clientId,
      path: this._panel.context.path,
      conversation: this._conversation(),
      settings: this._personal(),
      tools: this._tools.specs as unknown as Json
    };
  }

  /** The conversation that the notebook's last output of an agent names. */
  private _conversation(): string {
    const outputs = [...this._panel.context.model.cells].flatMap(cell => cell.outputs?.toJSON() ?? []);
    const named = outputs.map(output => (output as SavedOutput).metadata?.agent_magics?.conversation);
    return named.filter(Boolean).pop() ?? '';
  }

  private _sendTools(): void {
    this._line.send({ type: 'tools', tools: this._tools.specs as unknown as Json });
  }

  // -- what becomes of cells and kernel -----------------------------------------------------------

  private _onStatus(_: Kernel, status: string): void {
    if (ENDED.includes(status)) {
      this._line.forget();
      settleAll(this._panel);
      this._leave();
    }
  }

  /** The agents are gone, and with them what the page shows of them and has asked. */
  private _leave(): void {
    this._asked.forEach(answer => answer(null));
    this.reviews.dispose();
    this._marks.dispose();
    this._panel.node.classList.remove(LINKED);
    this._feet.dispose();
    this._follow.dispose();
    this._work.leave(this._panel);
    this._around.remove(this._line);
  }

  /** Tell of deleted cells, settle copies and draw anew, a moment later: a cell that is moved goes, and comes back. */
  private _onCells(): void {
    clearTimeout(this._counting);
    this._counting = setTimeout(() => {
      const before = this._cells;
      this._cells = this._cellIds();
      const gone = [...before].filter(id => !this._cells.has(id));
      if (gone.length > 0) {
        this._line.send({ type: 'gone', cells: gone });
      }
      settleAll(this._panel, new Set([...this._cells].filter(id => !before.has(id))));
      this._feet.place();
      void this._marks.look();
    }, MOVING);
  }

  /** Tell of ended cells whose outputs the person has cleared, and saved so: they stay away. */
  private _onSaved(_: unknown, state: string): void {
    const isCleared = (id: string): boolean => this._redraw.isEmpty(id);
    const cleared = state === 'completed' ? [...this._kept].filter(isCleared) : [];
    if (cleared.length > 0) {
      cleared.forEach(id => this._kept.delete(id));
      this._line.send({ type: 'cleared', cells: cleared });
    }
  }

  /** The cells that can show outputs. */
  private _cellIds(): Set<string> {
    const { cells } = this._panel.context.model.sharedModel;
    return new Set(cells.filter(cell => cell.cell_type === 'code').map(cell => cell.id));
  }

  // -- what the kernel says -----------------------------------------------------------------------

  private _onMessage(_: Kernel, message: Message): void {
    const { msg_type } = message.header;
    // What this page has asked for, JupyterLab shows.
    const isOwn = message.parent_header.session === this._kernel.clientId;
    if (!isOwn && ['display_data', 'update_display_data'].includes(msg_type)) {
      this._redraw.apply(message);
    }
  }

  private _hear(_: Line, heard: { [key: string]: Json }): void {
    const data = heard as unknown as Wish;
    switch (data.type) {
      case 'welcome':
        this._panel.node.classList.add(LINKED);
        this._sendTools(); // some may have come or gone since the knock
        this.sendSettings();
        this.reviews.look();
        void this._marks.look();
        this._around.add({ line: this._line, path: this._panel.context.path, panel: this._panel });
        break;
      case 'goodbye':
        this._leave();
        break;
      case 'refused':
        settleAll(this._panel); // it has not loaded agent_magics, so another kernel left that
        break;
      case 'overview':
        this._around.show(this._line, data);
        break;
      case 'kept':
        this._kept.add(String(data.cell));
        break;
      case 'redraw':
        if (data.ended) {
          this._kept.add(String(data.cell));
        }
        this._redraw[data.ended ? 'restore' : 'begin'](
          String(data.cell),
          data.outputs as { display_id: string; data: unknown }[]
        );
        break;
      case 'foot':
        if (data.done) {
          this._feet.end(String(data.cell));
          this._follow.end(String(data.cell));
          this._work.end(this._panel, String(data.cell));
        } else if (this._cellIds().has(String(data.cell))) {
          // Notebooks that share a kernel hear of each other's cells.
          this._feet.show(data as unknown as FootData);
          this._follow.begin(String(data.cell));
          this._work.show(this._panel, data as unknown as FootData);
        }
        break;
      case 'helper':
        if (data.doing === '') {
          this._work.end(this._panel, String(data.cell), String(data.agent));
        } else if (this._cellIds().has(String(data.cell))) {
          this._work.show(this._panel, data as unknown as FootData, String(data.agent));
        }
        break;
      case 'cells':
        void this._marks.look();
        break;
      case 'unheard':
        this._feet.giveBack(String(data.cell), String(data.text));
        break;
      case 'answer':
        this._asked.get(String(data.id))?.(data);
        break;
      case 'call':
        void this._call(data);
        break;
      case 'wish':
        this._fulfil(data);
        break;
    }
  }

  private async _call(data: Wish): Promise<void> {
    const call = {
      callId: String(data.call_id),
      arguments: data.arguments as Record<string, unknown>,
      path: this._panel.context.path
    };
    const { items, success } = await this._tools.call(String(data.name), call);
    this._line.send({ type: 'result', call_id: call.callId, items: items as unknown as Json, success });
  }

  private _fulfil(wish: Wish): void {
    const id = String(wish.id);
    try {
      const act = wish.op === 'restore' ? restoreCells : perform;
      this._line.send({ type: 'reply', id, value: act(this._panel, wish) });
    } catch (error) {
      const why = error instanceof Refusal ? error.message : `the page failed: ${String(error)}`;
      const stale = error instanceof Stale ? error.source : null;
      this._line.send({ type: 'reply', id, refused: why, stale });
    }
  }

  /** Ended cells whose outputs the kernel keeps for pages that were away. */
  private _kept = new Set<string>();
  private _asked = new Map<string, (answer: Wish | null) => void>();
  private _cells = new Set<string>();
  private _counting: ReturnType<typeof setTimeout> | undefined;
  private _isDisposed = false;
  private _line: Line;
  private _redraw: Redraw;
  private _feet: Feet;
  private _marks: CellMarks;
  private _follow: Follow;
}
