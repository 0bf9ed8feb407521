/**
 * The small part of JupyterLab that is used here, as types.
 *
 * JupyterLab itself lends the code when the extension runs. Its packages would only serve as
 * types, and bring two hundred others into every build.
 */

declare module '@jupyterlab/application' {
  import type { Kernel } from '@jupyterlab/notebook';
  import type { LabIcon } from '@jupyterlab/ui-components';
  import type { Token } from '@lumino/coreutils';
  import type { ISignal } from '@lumino/signaling';
  import type { Widget } from '@lumino/widgets';

  export interface CommandRegistry {
    addCommand(
      id: string,
      options: {
        label: string;
        caption: string;
        execute: () => void;
        isEnabled: () => boolean;
        isVisible?: () => boolean;
        icon?: LabIcon;
      }
    ): unknown;
    execute(id: string, args?: object): Promise<unknown>;
    notifyCommandChanged(id?: string): void;
    hasCommand(id: string): boolean;
  }

  export interface JupyterFrontEnd {
    readonly commands: CommandRegistry;
    readonly shell: {
      activateById(id: string): void;
      add(widget: Widget, area: string, options: { rank: number }): void;
    };
    readonly serviceManager: {
      readonly sessions: {
        readonly runningChanged: ISignal<unknown, SessionModel[]>;
        running(): IterableIterator<SessionModel>;
      };
      readonly kernels: {
        connectTo(options: { model: { id: string; name: string }; handleComms: boolean }): Kernel;
      };
      readonly contents: { get(path: string, options: { content: boolean }): Promise<FileModel> };
    };
  }

  export interface SessionModel {
    readonly path: string;
    readonly type: string;
    readonly kernel: { readonly id: string; readonly name: string } | null;
  }

  export interface FileModel {
    /** Of a notebook: as nbformat has it. */
    readonly content: { cells?: { source: string | string[] }[] } | null;
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
      type: 'info' | 'success' | 'warning',
      options: {
        actions?: { label: string; callback: () => void }[];
        autoClose: number | false;
      }
    ): string;
    function dismiss(id: string): void;
  }
}

declare module '@jupyterlab/running' {
  import type { LabIcon } from '@jupyterlab/ui-components';
  import type { Token } from '@lumino/coreutils';
  import type { ISignal } from '@lumino/signaling';

  export interface IRunningItem {
    open(): void;
    shutdown(): void;
    icon(): LabIcon;
    label(): string;
    labelTitle(): string;
    detail(): string;
  }

  export interface IRunningSessionManagers {
    add(manager: {
      name: string;
      running(): IRunningItem[];
      shutdownAll(): void;
      refreshRunning(): void;
      runningChanged: ISignal<unknown, unknown>;
      shutdownLabel: string;
      shutdownAllLabel: string;
      shutdownAllConfirmationText: string;
    }): unknown;
  }

  export const IRunningSessionManagers: Token<IRunningSessionManagers>;
}

declare module '@jupyterlab/settingregistry' {
  import type { Json } from '@jupyterlab/notebook';
  import type { Token } from '@lumino/coreutils';
  import type { ISignal } from '@lumino/signaling';

  export interface ISettingRegistry {
    load(plugin: string): Promise<{
      /** What the person has set, without defaults. */
      readonly user: { [name: string]: Json };
      /** With defaults. */
      readonly composite: { [name: string]: Json };
      readonly schema: { properties?: { [name: string]: { enum?: string[] } } };
      readonly changed: ISignal<unknown, unknown>;
    }>;
  }

  export const ISettingRegistry: Token<ISettingRegistry>;
}

declare module '@jupyterlab/translation' {
  import type { Token } from '@lumino/coreutils';

  export interface TranslationBundle {
    __(text: string, ...values: (string | number)[]): string;
    _n(one: string, many: string, count: number, ...values: (string | number)[]): string;
  }

  export interface ITranslator {
    load(domain: string): TranslationBundle;
  }

  export const ITranslator: Token<ITranslator>;
  export const nullTranslator: ITranslator;
}

declare module '@jupyterlab/ui-components' {
  export class LabIcon {
    constructor(options: { name: string; svgstr: string });
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

  /** A cell as in a file; outputs and count of code cells. */
  export interface CellJson {
    id?: string;
    cell_type: string;
    source: string | string[];
    outputs?: Output[];
    execution_count?: number | null;
    metadata?: Record<string, unknown>;
  }

  export interface SharedCell {
    readonly id: string;
    readonly cell_type: string;
    getSource(): string;
    updateSource(start: number, end: number, value: string): void;
    readonly changed: ISignal<
      unknown,
      { readonly sourceChange?: unknown; readonly metadataChange?: unknown }
    >;
    getMetadata(key: string): unknown;
    toJSON(): CellJson;
    readonly undoManager?: UndoManager | null;
  }

  /** Of yjs; what comes within half a second is one step to it. */
  export interface UndoManager {
    stopCapturing(): void;
  }

  export interface SharedNotebook {
    readonly cells: readonly SharedCell[];
    insertCell(index: number, cell: CellJson): SharedCell;
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
    onIOPub: (message: Message) => void;
  }

  export interface Comm {
    readonly commId: string;
    readonly isDisposed: boolean;
    /** Since JupyterLab 4.5. */
    readonly subshellId?: string | null;
    readonly subshellStarted?: Promise<void>;
    open(data: Json): Future;
    send(data: Json): Future;
    close(): Future;
  }

  export interface Kernel {
    readonly id: string;
    readonly clientId: string;
    readonly username: string;
    readonly isDisposed: boolean;
    readonly supportsSubshells?: boolean;
    /** Of the connections that a page has to one kernel only one has comms. */
    readonly handleComms: boolean;
    readonly info: Promise<unknown>;
    readonly iopubMessage: ISignal<Kernel, Message>;
    readonly statusChanged: ISignal<Kernel, string>;
    readonly anyMessage: ISignal<Kernel, { msg: Message; direction: 'send' | 'recv' }>;
    readonly status: string;
    createComm(target: string, id?: string): Comm;
    /** Answered once the kernel has done what it was asked before. */
    requestKernelInfo(): Promise<unknown>;
    sendControlMessage(message: unknown, expectReply?: boolean): Future;
    requestExecute(content: {
      code: string;
      store_history: boolean;
      allow_stdin: boolean;
    }): Future;
    dispose(): void;
  }

  export interface SessionContext {
    readonly path: string;
    readonly session: { readonly kernel: Kernel | null } | null;
    readonly kernelChanged: ISignal<SessionContext, unknown>;
    readonly iopubMessage: ISignal<SessionContext, Message>;
  }

  export interface NotebookPanel {
    readonly id: string;
    readonly node: HTMLElement;
    readonly isDisposed: boolean;
    readonly isVisible: boolean;
    readonly disposed: ISignal<unknown, unknown>;
    readonly sessionContext: SessionContext;
    readonly context: {
      /** Only when the last view of the notebook is closed. */
      readonly isDisposed: boolean;
      readonly path: string;
      readonly ready: Promise<void>;
      readonly saveState: ISignal<unknown, string>;
      save(): Promise<void>;
      readonly model: {
        readonly readOnly: boolean;
        readonly collaborative?: boolean;
        readonly sharedModel: SharedNotebook;
        /** What is saved. */
        toJSON(): { cells: CellJson[] };
        readonly cells: {
          readonly length: number;
          readonly changed: ISignal<unknown, unknown>;
          get(index: number): CellModel;
          [Symbol.iterator](): IterableIterator<CellModel>;
        };
      };
    };
    readonly content: {
      readonly widgets: readonly { readonly model: CellModel; readonly node: HTMLElement }[];
      readonly activeCellChanged: ISignal<unknown, unknown>;
      readonly activeCell: {
        readonly model: CellModel;
        readonly node: HTMLElement;
        readonly ready: Promise<void>;
        readonly editor: {
          setCursorPosition(position: { line: number; column: number }): void;
          focus(): void;
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
    find(is: (panel: NotebookPanel) => boolean): NotebookPanel | undefined;
    forEach(action: (panel: NotebookPanel) => void): void;
  }

  export const INotebookTracker: Token<INotebookTracker>;
}

declare module '@jupyterlab/codemirror' {
  import type { Extension } from '@codemirror/state';
  import type { Parser } from '@lezer/highlight';
  import type { Token } from '@lumino/coreutils';
  import type { ISignal } from '@lumino/signaling';

  /** What an editor edits: the model of a cell, of a file. */
  export interface EditorModel {
    /** Of cells. */
    readonly type?: string;
    mimeType: string;
    readonly mimeTypeChanged: ISignal<EditorModel, unknown>;
    readonly sharedModel: { getSource(): string };
  }

  export interface IEditorExtensionRegistry {
    addExtension(extension: {
      name: string;
      factory: (options: { model: EditorModel }) => unknown;
    }): void;
  }

  export interface IEditorLanguageRegistry {
    getLanguage(
      language: string
    ): Promise<{ support?: { language: { parser: Parser } } } | null>;
  }

  export const IEditorExtensionRegistry: Token<IEditorExtensionRegistry>;
  export const IEditorLanguageRegistry: Token<IEditorLanguageRegistry>;

  export namespace EditorExtensionRegistry {
    function createImmutableExtension(extension: Extension): unknown;
  }
}

declare module '@jupyterlab/completer' {
  import type { Token } from '@lumino/coreutils';
  import type { EditorModel } from '@jupyterlab/codemirror';
  import type { Kernel } from '@jupyterlab/notebook';

  export interface CompletionContext {
    readonly widget: object;
    readonly editor?: { readonly model: EditorModel } | null;
    readonly session?: { readonly kernel: Kernel | null } | null;
  }

  /** Offsets are in characters, not in code units. */
  export interface CompletionReply {
    start: number;
    end: number;
    items: { label: string; insertText: string; type?: string }[];
  }

  export interface CompletionProvider {
    readonly identifier: string;
    readonly rank: number;
    readonly renderer: null;
    isApplicable(context: CompletionContext): Promise<boolean>;
    fetch(
      request: { text: string; offset: number },
      context: CompletionContext
    ): Promise<CompletionReply>;
  }

  export interface ICompletionProviderManager {
    registerProvider(provider: CompletionProvider): void;
  }

  export const ICompletionProviderManager: Token<ICompletionProviderManager>;
}

declare module '@codemirror/state' {
  export const Prec: { highest(extension: Extension): Extension };

  export type Extension = { readonly extension: Extension } | readonly Extension[];

  export interface EditorState {
    readonly doc: {
      readonly length: number;
      sliceString(from: number, to: number): string;
      toString(): string;
    };
    readonly selection: { readonly main: { readonly head: number } };
    replaceSelection(text: string): Transaction;
  }

  export interface Transaction {
    readonly effects: unknown;
  }

  export interface Range<T> {
    readonly value: T;
  }
}

declare module '@codemirror/view' {
  import type { EditorState, Extension, Range, Transaction } from '@codemirror/state';

  export type DecorationSet = object;

  export class Decoration {
    static mark(spec: { class: string }): Decoration;
    static set(marks: readonly Range<Decoration>[], sort?: boolean): DecorationSet;
    range(from: number, to: number): Range<Decoration>;
  }

  export interface ViewUpdate {
    readonly docChanged: boolean;
    readonly startState: EditorState;
    readonly state: EditorState;
    readonly transactions: readonly { isUserEvent(event: string): boolean }[];
  }

  export interface PluginValue {
    update?(update: ViewUpdate): void;
    destroy?(): void;
  }

  export class ViewPlugin {
    static define<T extends PluginValue>(
      create: (view: EditorView) => T,
      spec?: { decorations?: (value: T) => DecorationSet }
    ): Extension;
  }

  export class EditorView {
    readonly state: EditorState;
    dispatch(spec: { selection?: { anchor: number } } | Transaction): void;
    posAtCoords(place: { x: number; y: number }): number | null;
    static domEventHandlers(handlers: {
      paste(event: ClipboardEvent, view: EditorView): boolean;
      drop(event: DragEvent, view: EditorView): boolean;
    }): Extension;
    static readonly contentAttributes: {
      of(attributes: (view: EditorView) => { [name: string]: string } | null): Extension;
    };
    static readonly perLineTextDirection: {
      compute(deps: 'doc'[], get: (state: EditorState) => boolean): Extension;
    };
    static readonly updateListener: { of(listener: (update: ViewUpdate) => void): Extension };
  }
}

declare module '@codemirror/language' {
  import type { EditorState } from '@codemirror/state';
  import type { Tag } from '@lezer/highlight';

  export function highlightingFor(state: EditorState, tags: readonly Tag[]): string | null;
}

declare module '@lezer/highlight' {
  export interface Tag {
    readonly id: number;
  }

  export interface Parser {
    parse(text: string): object;
  }

  export const tags: { readonly keyword: Tag; readonly operator: Tag; readonly string: Tag };

  export function highlightTree(
    tree: object,
    highlighter: { style(tags: readonly Tag[]): string | null },
    put: (from: number, to: number, classes: string) => void
  ): void;
}
