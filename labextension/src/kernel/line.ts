/** One connection to a kernel in which agent_magics is loaded: messages out on a comm, in by an inbox. */

import type { Comm, Json, Kernel, Message } from '@jupyterlab/notebook';
import { UUID } from '@lumino/coreutils';
import { Signal, type ISignal } from '@lumino/signaling';

const TARGET = 'agent_magics';
const CONTROL = 'agent_magics_message';
/** Milliseconds that a kernel may take to start a subshell, and to say who it is. */
const SUBSHELL_LIMIT = 5_000;
const INFO_LIMIT = 2_000;
/** Milliseconds after a welcome in which a kernel that sends the page away means it. */
const LATELY = 10_000;

type Data = { [key: string]: Json };

/**
 * The page speaks on a comm of its own, on which the kernel never does: a kernel (ipykernel 7)
 * hands a comm's messages to the shell that last spoke on it, and that one may be busy. What the
 * kernel says comes under another id, which needs no comm. A connection that has no comms, since the
 * page has another one to the same kernel, speaks on the control channel, under an id of its own.
 */
export class Line {
  /** @param _hello - what the page says of itself. */
  constructor(
    readonly kernel: Kernel,
    private _hello: () => Data
  ) {
    kernel.iopubMessage.connect(this._onMessage, this);
  }

  /** What the kernel says, once it has let the page in (a `welcome`), or has not (`refused`). */
  get heard(): ISignal<this, Data> {
    return this._heard;
  }

  get isOpen(): boolean {
    return this._comms.has(this._id) && !this._comms.get(this._id)?.isDisposed;
  }

  /** Knock at a kernel that may be running since long, whatever it does now. */
  async begin(): Promise<void> {
    const answered = await within(INFO_LIMIT, this.kernel.info);
    if (this._isDisposed || this._isGone) {
      return;
    }
    if (answered && this.kernel.handleComms) {
      const comm = this.kernel.createComm(TARGET);
      await this._findWay(comm);
      this._knock(comm);
    } else {
      // Its main thread is busy, perhaps with the cell that this page ran before it was reloaded.
      this._knockByControl();
    }
  }

  /** Ask to be let in: a kernel with agent_magics says welcome, others close the comm. */
  knock(): void {
    if (this.isOpen || this._isDisposed || this._isGone) {
      return;
    }
    if (this.kernel.handleComms) {
      this._knock(this.kernel.createComm(TARGET));
    } else {
      void this._knockBehind();
    }
  }

  /** Send what is for the kernel; false where no comm is open. */
  send(data: Data): boolean {
    if (!this.isOpen || this._isGone) {
      return false;
    }
    const comm = this._comms.get(this._id);
    if (comm?.subshellId) {
      comm.send(data);
    } else {
      this._sendControl(this._id, data);
    }
    return true;
  }

  /**
   * Run a line of `%agent` in the kernel, once that is free, and return what it shows.
   *
   * @throws Error with the reason, where it fails.
   */
  async run(line: string): Promise<string> {
    const code = `get_ipython().run_line_magic("agent", ${JSON.stringify(line)})`;
    const future = this.kernel.requestExecute({ code, store_history: false, allow_stdin: false });
    const shown: string[] = [];
    future.onIOPub = ({ header, content }): void => {
      if (header.msg_type === 'display_data') {
        shown.push(String((content.data as Data)['text/plain'] ?? ''));
      }
    };
    const { content } = (await future.done) as Message;
    if (content.status !== 'ok') {
      throw new Error(String(content.evalue));
    }
    return shown.join('\n');
  }

  /** The kernel ends or starts anew: what the one that ends still says is not heard. */
  forget(): void {
    this._comms.clear();
    this._inbox = UUID.uuid4();
  }

  dispose(): void {
    this._isDisposed = true;
    this.kernel.iopubMessage.disconnect(this._onMessage, this);
    this.send({ type: 'bye' });
    this._comms.delete(this._id);
    if (!this._isGone) {
      this._comms.forEach((comm, id) => this._takeBack(id, comm));
    }
  }

  /** To a kernel that has ended nothing can be sent: JupyterLab throws. */
  private get _isGone(): boolean {
    return this.kernel.isDisposed || this.kernel.status === 'dead';
  }

  private _knock(comm: Comm): void {
    if (this.isOpen || this._isDisposed || comm.isDisposed || this._isGone) {
      return;
    }
    this._comms.set(comm.commId, comm);
    comm.open({ ...this._hello(), inbox: this._inbox });
  }

  /** Knock once the kernel has done what it was asked before: the control channel waits for nothing. */
  private async _knockBehind(): Promise<void> {
    try {
      await this.kernel.requestKernelInfo();
    } catch {
      return; // it has ended
    }
    if (!this.isOpen && !this._isDisposed && !this._isGone) {
      this._knockByControl();
    }
  }

  private _knockByControl(): void {
    const id = UUID.uuid4();
    this._comms.set(id, null);
    this._sendControl(id, { type: 'knock', ...this._hello(), inbox: this._inbox });
  }

  /** Close a comm behind its knock: the kernel may not have come to it yet, and would let in who has gone. */
  private _takeBack(id: string, comm: Comm | null): void {
    if (comm === null) {
      this._sendControl(id, { type: 'bye' });
    } else if (!comm.isDisposed) {
      comm.close();
    }
  }

  private _onMessage(_: Kernel, { header, content }: Message): void {
    if (header.msg_type === 'comm_close' && !this.isOpen && this._comms.has(String(content.comm_id))) {
      this._heard.emit({ type: 'refused' });
    }
    if (header.msg_type !== 'comm_msg' || content.comm_id !== this._inbox) {
      return;
    }
    const data = content.data as Data;
    if (data.type === 'welcome') {
      void this._enter(data);
      return;
    }
    if (data.type === 'goodbye') {
      this._comms.clear();
      this._comeAgain(data.again === true);
    }
    this._heard.emit(data);
  }

  /** @param again - the kernel took this page for gone, or has too many; else agent_magics was unloaded. */
  private _comeAgain(again: boolean): void {
    if (!again) {
      this.knock(); // where it is loaded again in the same breath, it hears this
    } else if (performance.now() - this._enteredAt > LATELY) {
      // Its main thread is at work. Pages that are too many do not push each other out for ever.
      this._knockByControl();
    }
  }

  private async _enter(welcome: Data): Promise<void> {
    // Each cell that was run before the first welcome has knocked; the kernel knows the page by the
    // last comm that it has let in, and so does the page.
    const id = String(welcome.comm);
    if (this._comms.has(id)) {
      this._id = id;
      this._enteredAt = performance.now();
      await this._findWay(this._comms.get(id));
      if (this._id !== id || !this.isOpen) {
        return; // the kernel has ended meanwhile, or has let in another comm
      }
      this.send({ type: 'ping' });
      this._heard.emit(welcome);
    }
  }

  /** A subshell, else the control channel: a way in while the main thread is busy. */
  private async _findWay(comm: Comm | null | undefined): Promise<void> {
    if (this.kernel.supportsSubshells && comm?.subshellStarted) {
      await within(SUBSHELL_LIMIT, comm.subshellStarted);
    }
  }

  private _sendControl(id: string, data: Data): void {
    this.kernel.sendControlMessage({
      channel: 'control',
      header: {
        msg_id: UUID.uuid4(),
        msg_type: CONTROL,
        date: new Date().toISOString(),
        session: this.kernel.clientId,
        username: this.kernel.username,
        version: '5.2'
      },
      parent_header: {},
      metadata: {},
      content: { comm_id: id, data },
      buffers: []
    });
  }

  /** What the page has knocked by; null for an id that only the control channel knows. */
  private _comms = new Map<string, Comm | null>();
  /** The one of them by which the page was let in. */
  private _id = '';
  private _enteredAt = -Infinity;
  private _heard = new Signal<this, Data>(this);
  private _inbox = UUID.uuid4();
  private _isDisposed = false;
}

/** Whether something came about in so many milliseconds. */
export function within(limit: number, coming: Promise<unknown>): Promise<boolean> {
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
