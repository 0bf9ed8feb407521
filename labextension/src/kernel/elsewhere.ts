/** Connects to the kernels of notebooks that run but are not open in this page, while somebody looks. */

import type { JupyterFrontEnd, SessionModel } from '@jupyterlab/application';

import type { Around } from './around.js';
import { Line } from './line.js';
import { ENDED, MENTIONED } from './link.js';

type Services = JupyterFrontEnd['serviceManager'];

export class Elsewhere {
  /** @param _isOpen - whether this page shows a kernel's notebook. */
  constructor(
    private _services: Services,
    private _around: Around,
    private _isOpen: (kernel: string) => boolean
  ) {
    const compare = (): void => void (this._looking && this._compare());
    _services.sessions.runningChanged.connect(compare);
    _around.changed.connect(compare); // this page may have opened one of them
  }

  look(looking: boolean): void {
    this._looking = looking;
    if (looking) {
      this._known = new Set(this._lines.keys()); // those without an agent may have one by now
    }
    this._compare();
  }

  /** Connect to the kernels that are not connected yet, and leave those that are not wanted. */
  private _compare(): void {
    const wanted = this._wanted;
    for (const [id, line] of this._lines) {
      if (!wanted.has(id)) {
        this._known.delete(id);
        this._leave(id, line);
      }
    }
    wanted.forEach((model, id) => !this._known.has(id) && void this._connect(model, id));
  }

  private _leave(id: string, line: Line): void {
    this._lines.delete(id);
    this._around.remove(line);
    line.dispose();
    line.kernel.dispose();
  }

  /** The notebooks to be connected to, by their kernels' ids. */
  private get _wanted(): Map<string, SessionModel> {
    const models = this._looking ? [...this._services.sessions.running()] : [];
    return new Map(models.filter(each => this._isWanted(each)).map(each => [each.kernel!.id, each]));
  }

  private _isWanted({ type, kernel }: SessionModel): boolean {
    return type === 'notebook' && kernel !== null && !this._isOpen(kernel.id);
  }

  /** Knock where the saved notebook is of our kind: to another kernel a knock is a warning in its log. */
  private async _connect({ path, kernel }: SessionModel, id: string): Promise<void> {
    this._known.add(id);
    try {
      const { content } = await this._services.contents.get(path, { content: true });
      const sources = (content?.cells ?? []).map(({ source }) => [source].flat().join(''));
      // Meanwhile somebody may have looked away and back, or opened it.
      const isWanted = this._wanted.has(id) && !this._lines.has(id);
      if (isWanted && sources.some(source => MENTIONED.test(source))) {
        // The comms stay for the notebook, which this page may open: it could draw no widget without.
        const connection = this._services.kernels.connectTo({ model: kernel!, handleComms: false });
        const line = new Line(connection, () => ({ version: 1, path, watcher: true }));
        line.heard.connect((_, data) => {
          if (data.type === 'welcome') {
            this._around.add({ line, path, panel: null });
          } else if (data.type === 'overview') {
            this._around.show(line, data);
          }
        });
        // A kernel that restarts has no agents any more; when somebody looks again it may.
        line.kernel.statusChanged.connect((_, status) => {
          if (ENDED.includes(status)) {
            this._leave(id, line);
          }
        });
        this._lines.set(id, line);
        await line.begin();
      }
    } catch {
      // A file that is gone, or a kernel that has just ended: there is nothing to show of it.
    }
  }

  private _known = new Set<string>();
  private _lines = new Map<string, Line>();
  private _looking = false;
}
