/** What other extensions can ask for: tools of theirs, which the agents of a kernel can call. */

import { Token } from '@lumino/coreutils';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

/** A tool as the model sees it. */
export interface ToolSpec {
  /** 1 to 64 letters, digits, `_` or `-`; no other tool may have it. */
  name: string;
  description: string;
  /** JSON schema of the arguments, an object. */
  inputSchema: Record<string, unknown>;
}

/** One call. */
export interface ToolCall {
  callId: string;
  /** The arguments; the model wrote them, so check what you use. */
  arguments: Record<string, unknown>;
  /** Path of the notebook whose agent calls. */
  path: string;
}

/** A piece of an answer; `image_url` is a `data:` address. */
export type ContentItem =
  { type: 'input_text'; text: string } | { type: 'input_image'; image_url: string };

/** What a handler may return: text, pieces, or anything that JSON can hold. */
export type ToolResult = string | ContentItem[] | unknown;

export type ToolHandler = (call: ToolCall) => ToolResult | Promise<ToolResult>;

export interface IAgentMagics {
  /**
   * Offer a tool to the agents of every notebook in this page, from their next cell on.
   *
   * A call is put to the person like any other that may change something. What the handler throws
   * is told to the model, which can call again.
   *
   * @returns dispose of it to take the tool away.
   * @throws Error if the name is taken or cannot be one.
   */
  registerTool(spec: ToolSpec, handler: ToolHandler): IDisposable;
}

export const IAgentMagics = new Token<IAgentMagics>(
  'agent-magics:IAgentMagics',
  'Offers tools of other extensions to the agents in notebooks.'
);

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** The tools of this page. */
export class PageTools implements IAgentMagics {
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get specs(): ToolSpec[] {
    return [...this._tools.values()].map(tool => tool.spec);
  }

  registerTool(spec: ToolSpec, handler: ToolHandler): IDisposable {
    if (!NAME.test(spec.name)) {
      throw new Error(`"${spec.name}" cannot be a tool's name: 1 to 64 letters, digits, _ or -`);
    }
    if (this._tools.has(spec.name)) {
      throw new Error(`there is a tool named "${spec.name}" already`);
    }
    const tool = { spec, handler };
    this._tools.set(spec.name, tool);
    this._changed.emit();
    return new DisposableDelegate(() => {
      this._tools.delete(spec.name);
      this._changed.emit();
    });
  }

  /** Answer a call; whatever happens, there is an answer. */
  async call(name: string, call: ToolCall): Promise<{ items: ContentItem[]; success: boolean }> {
    const tool = this._tools.get(name);
    if (tool === undefined) {
      return { items: [asText(`${name} is not offered by this page any more.`)], success: false };
    }
    try {
      return { items: asItems(await tool.handler(call)), success: true };
    } catch (error) {
      return { items: [asText(`${name} failed: ${String(error)}`)], success: false };
    }
  }

  private _tools = new Map<string, { spec: ToolSpec; handler: ToolHandler }>();
  private _changed = new Signal<this, void>(this);
}

function asText(text: string): ContentItem {
  return { type: 'input_text', text };
}

function asItems(result: ToolResult): ContentItem[] {
  if (Array.isArray(result) && result.length > 0 && result.every(isItem)) {
    return result;
  }
  return [asText(typeof result === 'string' ? result : (JSON.stringify(result) ?? 'done'))];
}

function isItem(value: unknown): value is ContentItem {
  const item = (value ?? {}) as Record<string, unknown>;
  return (
    (item.type === 'input_text' && typeof item.text === 'string') ||
    (item.type === 'input_image' && typeof item.image_url === 'string')
  );
}
