/**
 * The small part of JupyterLab that is used here, as types.
 *
 * JupyterLab itself lends the code when the extension runs. Its packages would only serve as
 * types, and bring two hundred others into every build.
 */

declare module '@jupyterlab/application' {
  import type { Token } from '@lumino/coreutils';

  export interface CommandRegistry {
    addCommand(
      id: string,
      options: {
        label: string;
        caption: string;
        execute: () => void;
        isEnabled: () => boolean;
      }
    ): unknown;
    notifyCommandChanged(id?: string): void;
  }

  export interface JupyterFrontEnd {
    readonly commands: CommandRegistry;
    readonly shell: { activateById(id: string): void };
  }

  export interface JupyterFrontEndPlugin<T> {
    id: string;
    description?: string;
    autoStart?: boolean;
    requires?: Token<unknown>[];
    optional?: Token<unknown>[];
    provides?: Token<T>;
    activate: (app: JupyterFrontEnd, ...services: never[]) => T;
  }
}

declare module '@jupyterlab/apputils' {
  import type { Token } from '@lumino/coreutils';

  export interface ICommandPalette {
    addItem(item: { command: string; category: string }): unknown;
  }

  export const ICommandPalette: Token<ICommandPalette>;

  export namespace Notification {
    function emit(
      message: string,
      type: 'info' | 'success',
      options: {
        actions: { label: string; callback: () => void }[];
        autoClose: number | false;
      }
    ): string;
    function dismiss(id: string): void;
  }
}

declare module '@jupyterlab/statusbar' {
  import type { Token } from '@lumino/coreutils';
  import type { ISignal } from '@lumino/signaling';
  import type { Widget } from '@lumino/widgets';

  export interface IStatusBar {
    registerStatusItem(
      id: string,
      item: {
        item: Widget;
        align: 'left' | 'right';
        isActive: () => boolean;
        activeStateChanged: ISignal<unknown, unknown>;
      }
    ): unknown;
  }

  export const IStatusBar: Token<IStatusBar>;
}

declare module '@jupyterlab/notebook' {
  import type { Token } from '@lumino/coreutils';
  import type { ISignal } from '@lumino/signaling';

  export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
  export type Output = { output_type: string; [key: string]: unknown };

  export interface SharedCell {
    readonly id: string;
    readonly cell_type: string;
    getSource(): string;
    updateSource(start: number, end: number, value: string): void;
    getMetadata(key: string): unknown;
    readonly undoManager?: UndoManager | null;
  }

  /** Of yjs; what comes within half a second is one step to it. */
  export interface UndoManager {
    stopCapturing(): void;
  }

  export interface SharedNotebook {
    readonly cells: readonly SharedCell[];
    insertCell(index: number, cell: { cell_type: string; source: string }): SharedCell;
    deleteCell(index: number): void;
    transact(change: () => void, undoable?: boolean): void;
    readonly undoManager?: UndoManager | null;
  }

  export interface OutputAreaModel {
    readonly length: number;
    clear(wait?: boolean): void;
    add(output: Output): number;
    set(index: number, output: Output): void;
    toJSON(): Output[];
  }

  export interface CellModel {
    readonly id: string;
    readonly sharedModel: SharedCell;
    trusted: boolean;
    /** Of code cells. */
    readonly outputs?: OutputAreaModel;
    executionCount?: number | null;
    executionState?: string;
  }

  export interface Message {
    header: { msg_id: string; msg_type: string; session: string };
    parent_header: { msg_id?: string; session?: string };
    content: Record<string, unknown>;
  }

  export interface Future {
    readonly done: Promise<unknown>;
  }

  export interface Comm {
    readonly commId: string;
    readonly isDisposed: boolean;
    /** Since JupyterLab 4.5. */
    readonly subshellId?: string | null;
    readonly subshellStarted?: Promise<void>;
    open(data: Json): Future;
    send(data: Json): Future;
  }

  export interface Kernel {
    readonly id: string;
    readonly clientId: string;
    readonly username: string;
    readonly isDisposed: boolean;
    readonly supportsSubshells?: boolean;
    readonly info: Promise<unknown>;
    readonly iopubMessage: ISignal<Kernel, Message>;
    readonly statusChanged: ISignal<Kernel, string>;
    readonly anyMessage: ISignal<Kernel, { msg: Message; direction: 'send' | 'recv' }>;
    createComm(target: string, id?: string): Comm;
    sendControlMessage(message: unknown, expectReply?: boolean): Future;
  }

  export interface SessionContext {
    readonly path: string;
    readonly session: { readonly kernel: Kernel | null } | null;
    readonly kernelChanged: ISignal<SessionContext, unknown>;
  }

  export interface NotebookPanel {
    readonly id: string;
    readonly node: HTMLElement;
    readonly isDisposed: boolean;
    readonly isVisible: boolean;
    readonly disposed: ISignal<unknown, unknown>;
    readonly sessionContext: SessionContext;
    readonly context: {
      readonly path: string;
      readonly ready: Promise<void>;
      save(): Promise<void>;
      readonly model: {
        readonly readOnly: boolean;
        readonly collaborative?: boolean;
        readonly sharedModel: SharedNotebook;
        readonly cells: {
          readonly length: number;
          readonly changed: ISignal<unknown, unknown>;
          get(index: number): CellModel;
        };
      };
    };
    readonly content: {
      readonly widgets: readonly { readonly model: CellModel; readonly node: HTMLElement }[];
      readonly activeCell: {
        readonly model: CellModel;
        readonly ready: Promise<void>;
        readonly editor: {
          setCursorPosition(position: { line: number; column: number }): void;
        } | null;
      } | null;
      activeCellIndex: number;
      mode: 'command' | 'edit';
      activate(): void;
    };
  }

  export interface INotebookTracker {
    readonly widgetAdded: ISignal<INotebookTracker, NotebookPanel>;
    readonly currentWidget: NotebookPanel | null;
    forEach(action: (panel: NotebookPanel) => void): void;
  }

  export const INotebookTracker: Token<INotebookTracker>;
}
