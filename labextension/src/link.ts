/** The line between one open notebook and its kernel, once agent_magics is loaded there. */

import type { Comm, Json, Kernel, Message, NotebookPanel } from '@jupyterlab/notebook';
import { UUID } from '@lumino/coreutils';

import type { PageTools } from './api.js';
import { perform, Refusal, Stale, type Wish } from './document.js';
import { Feet, type FootData } from './foot.js';
import { Follow } from './follow.js';
import { Redraw } from './redraw.js';
import { settleAll } from './settle.js';
import type { Work } from './work.js';

const TARGET = 'agent_magics';
const CONTROL = 'agent_magics_message';
const VERSION = 1;
/** Milliseconds that a kernel may take to start a subshell, and to say who it is. */
const SUBSHELL_LIMIT = 5_000;
const INFO_LIMIT = 2_000;
/** Milliseconds in which a cell that was moved is back. */
const MOVING = 300;
/** What a notebook holds, or a cell that is run, where agent_magics may be loaded. */
const MENTIONED = /agent_magics|^\s*%{1,2}agent\b/m;

/** What is looked at of a saved output. */
interface SavedOutput {
  metadata?: { agent_magics?: { conversation?: string } };
}

/**
 * The page speaks on a comm of its own, on which the kernel never does: a kernel (ipykernel 7)
 * hands a comm's messages to the shell that last spoke on it, and that one may be busy. What the
 * kernel says comes under another id, which needs no comm.
 */
export class Link {
  constructor(
    private _panel: NotebookPanel,
    private _kernel: Kernel,
    private _tools: PageTools,
    private _work: Work
  ) {
    this._redraw = new Redraw(_panel);
    this._feet = new Feet(_panel, data => this._send(data));
    this._follow = new Follow(_panel);
    _kernel.iopubMessage.connect(this._onMessage, this);
    _kernel.anyMessage.connect(this._onAnyMessage, this);
    _kernel.statusChanged.connect(this._onStatus, this);
    _tools.changed.connect(this._sendTools, this);
    void this._begin();
  }

  get kernelId(): string {
    return this._kernel.id;
  }

  /** Hand over what the person did with a question in this page. */
  answer(id: string, content: Json): void {
    this._send({ type: 'question', id, content });
  }

  dispose(): void {
    this._isDisposed = true;
    this._feet.dispose();
    this._follow.dispose();
    this._work.leave(this._panel);
    this._kernel.iopubMessage.disconnect(this._onMessage, this);
    this._kernel.anyMessage.disconnect(this._onAnyMessage, this);
    this._kernel.statusChanged.disconnect(this._onStatus, this);
    if (!this._panel.isDisposed) {
      this._panel.context.model.cells.changed.disconnect(this._onCells, this);
    }
    this._tools.changed.disconnect(this._sendTools, this);
    if (!this._kernel.isDisposed) {
      this._send({ type: 'bye' });
    }
    this._comm = null;
  }

  // -- opening: by whom the extension is loaded, the kernel does not say --------------------------

  /** Knock where the notebook is of our kind: its kernel may be running since long. */
  private async _begin(): Promise<void> {
    await this._panel.context.ready;
    this._cells = this._cellIds();
    this._panel.context.model.cells.changed.connect(this._onCells, this);
    const answered = await within(INFO_LIMIT, this._kernel.info);
    if (this._isDisposed || !this._mentions()) {
      return;
    }
    const comm = this._kernel.createComm(TARGET);
    if (answered) {
      await this._findWay(comm);
      this._knock(comm);
    } else {
      // Its main thread is busy, perhaps with the cell that this page ran before it was reloaded.
      this._comms.set(comm.commId, comm);
      this._sendControl(comm, { type: 'knock', ...this._hello() });
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
    }
    if (MENTIONED.test(String(msg.content.code))) {
      // Now, and so behind that cell and in front of the next one, which may be an agent's.
      this._knock(this._kernel.createComm(TARGET));
    }
  }

  /** Ask to be let in: a kernel with agent_magics says welcome, others close the comm. */
  private _knock(comm: Comm): void {
    if (this._isOpen || this._isDisposed || comm.isDisposed) {
      return;
    }
    this._comms.set(comm.commId, comm);
    comm.open(this._hello());
  }

  private _hello(): { [key: string]: Json } {
    return {
      version: VERSION,
      client: this._kernel.clientId,
      path: this._panel.context.path,
      conversation: this._conversation(),
      inbox: this._inbox,
      tools: this._tools.specs as unknown as Json
    };
  }

  /** The conversation that the notebook's last output of an agent names. */
  private _conversation(): string {
    const { cells } = this._panel.context.model;
    let found = '';
    for (let index = 0; index < cells.length; index++) {
      for (const output of cells.get(index).outputs?.toJSON() ?? []) {
        const { metadata } = output as unknown as SavedOutput;
        found = metadata?.agent_magics?.conversation ?? found;
      }
    }
    return found;
  }

  private async _enter(id: string): Promise<void> {
    const comm = this._comms.get(id);
    this._comms.clear();
    if (comm !== undefined) {
      this._comm = comm;
      await this._findWay(comm);
      this._send({ type: 'ping' });
      this._sendTools(); // some may have come or gone since the knock
    }
  }

  /** A subshell, else the control channel: a way in while the main thread is busy. */
  private async _findWay(comm: Comm): Promise<void> {
    if (this._kernel.supportsSubshells && comm.subshellStarted) {
      await within(SUBSHELL_LIMIT, comm.subshellStarted);
    }
  }

  private get _isOpen(): boolean {
    return this._comm !== null && !this._comm.isDisposed;
  }

  private _send(data: { [key: string]: Json }): void {
    const comm = this._comm;
    if (comm === null || comm.isDisposed) {
      return;
    }
    if (comm.subshellId) {
      comm.send(data);
    } else {
      this._sendControl(comm, data);
    }
  }

  private _sendControl(comm: Comm, data: { [key: string]: Json }): void {
    this._kernel.sendControlMessage({
      channel: 'control',
      header: {
        msg_id: UUID.uuid4(),
        msg_type: CONTROL,
        date: new Date().toISOString(),
        session: this._kernel.clientId,
        username: this._kernel.username,
        version: '5.2'
      },
      parent_header: {},
      metadata: {},
      content: { comm_id: comm.commId, data },
      buffers: []
    });
  }

  private _sendTools(): void {
    this._send({ type: 'tools', tools: this._tools.specs as unknown as Json });
  }

  // -- what becomes of cells and kernel -----------------------------------------------------------

  private _onStatus(_: Kernel, status: string): void {
    if (['restarting', 'autorestarting', 'dead'].includes(status)) {
      settleAll(this._panel);
      this._feet.dispose();
      this._follow.dispose();
      this._work.leave(this._panel);
    }
  }

  /** Tell of deleted cells, a moment later: a cell that is moved goes, and comes back. */
  private _onCells(): void {
    clearTimeout(this._counting);
    this._counting = setTimeout(() => {
      const before = this._cells;
      this._cells = this._cellIds();
      const gone = [...before].filter(id => !this._cells.has(id));
      if (gone.length > 0 && !this._isDisposed && !this._panel.isDisposed) {
        this._send({ type: 'gone', cells: gone });
      }
    }, MOVING);
  }

  private _cellIds(): Set<string> {
    return new Set(this._panel.context.model.sharedModel.cells.map(cell => cell.id));
  }

  // -- what the kernel says -----------------------------------------------------------------------

  private _onMessage(_: Kernel, message: Message): void {
    const { content } = message;
    switch (message.header.msg_type) {
      case 'comm_msg':
        if (content.comm_id === this._inbox) {
          this._hear(content.data as Wish);
        }
        break;
      case 'display_data':
      case 'update_display_data':
        // What this page has asked for, JupyterLab shows.
        if (message.parent_header.session !== this._kernel.clientId) {
          this._redraw.apply(message);
        }
        break;
    }
  }

  private _hear(data: Wish): void {
    switch (data.type) {
      case 'welcome':
        void this._enter(String(data.comm));
        break;
      case 'goodbye':
        // agent_magics was unloaded; where it is loaded again in the same breath, it hears this.
        this._comm = null;
        this._knock(this._kernel.createComm(TARGET));
        break;
      case 'redraw':
        this._redraw[data.ended ? 'restore' : 'begin'](
          String(data.cell),
          data.outputs as { display_id: string; data: unknown }[]
        );
        break;
      case 'foot':
        if (data.done) {
          this._feet.end(String(data.cell));
          this._follow.end(String(data.cell));
          this._work.end(String(data.cell));
        } else {
          this._feet.show(data as unknown as FootData);
          this._follow.begin(String(data.cell));
          this._work.show(this._panel, data as unknown as FootData);
        }
        break;
      case 'unheard':
        this._feet.giveBack(String(data.cell), String(data.text));
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
    this._send({ type: 'result', call_id: call.callId, items: items as unknown as Json, success });
  }

  private _fulfil(wish: Wish): void {
    const id = String(wish.id);
    try {
      this._send({ type: 'reply', id, value: perform(this._panel, wish) });
    } catch (error) {
      const why = error instanceof Refusal ? error.message : `the page failed: ${String(error)}`;
      const stale = error instanceof Stale ? error.source : null;
      this._send({ type: 'reply', id, refused: why, stale });
    }
  }

  private _cells = new Set<string>();
  private _counting: ReturnType<typeof setTimeout> | undefined;
  private _comm: Comm | null = null;
  private _comms = new Map<string, Comm>();
  private _inbox = UUID.uuid4();
  private _isDisposed = false;
  private _redraw: Redraw;
  private _feet: Feet;
  private _follow: Follow;
}

/** Whether something came about in so many milliseconds. */
function within(limit: number, coming: Promise<unknown>): Promise<boolean> {
  return new Promise(resolve => {
    const late = setTimeout(() => resolve(false), limit);
    const came = (done: boolean): void => {
      clearTimeout(late);
      resolve(done);
    };
    coming.then(
      () => came(true),
      () => came(false)
    );
  });
}
