/** Saves files that are pasted or dropped into an agent's cell, and writes where they are. */

import { EditorView } from '@codemirror/view';
import type { Extension } from '@codemirror/state';
import { Notification } from '@jupyterlab/apputils';
import { UUID } from '@lumino/coreutils';

import type { Link } from '../kernel/link.js';
import { PICTURES } from '../text/plain.js';
import { trans } from '../text/translation.js';
import { apart, isPrompt } from './cell_text.js';

/** Bytes of the largest file, and of one message. */
const MOST = 20 * 1024 * 1024;
const PART = 256 * 1024;
/** Milliseconds for one part. */
const LIMIT = 30_000;

/** The extension for an editor; `linkOf` finds the line to its kernel. */
export function takeFiles(linkOf: () => Link | undefined): Extension {
  const take = (view: EditorView, files: FileList | undefined): boolean => {
    if (!files?.length || !isPrompt(view.state.doc.toString())) {
      return false;
    }
    void insertAll(view, [...files], linkOf());
    return true;
  };
  return EditorView.domEventHandlers({
    // What has text too, such as cells of a spreadsheet, is pasted as text.
    paste: ({ clipboardData }, view) =>
      !clipboardData?.types.includes('text/plain') && take(view, clipboardData?.files),
    drop: (event, view) => {
      const place = view.posAtCoords({ x: event.clientX, y: event.clientY });
      const files = event.dataTransfer?.files;
      if (files?.length && place !== null && isPrompt(view.state.doc.toString())) {
        view.dispatch({ selection: { anchor: place } });
      }
      return take(view, files);
    }
  });
}

async function insertAll(view: EditorView, files: File[], link: Link | undefined): Promise<void> {
  for (const file of files) {
    try {
      const path = await save(file, link);
      const isPicture = PICTURES.includes(file.type);
      insert(view, isPicture ? `![](${path})` : path);
      if (!isPicture && file.type.startsWith('image/')) {
        tell(
          trans.__(
            '%1 is saved, but the model gets only its path: it sees PNG, JPEG, GIF and WebP.',
            path
          )
        );
      }
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error));
    }
  }
}

/** Insert a place at the cursor; what was selected while the file was sent stays. */
function insert(view: EditorView, place: string): void {
  const { doc, selection } = view.state;
  const at = selection.main.head;
  const text = apart(place, doc.sliceString(Math.max(at - 1, 0), at), doc.sliceString(at, at + 2));
  view.dispatch({ selection: { anchor: at } });
  view.dispatch(view.state.replaceSelection(text));
}

/** Send a file to the kernel, a part at a time, and return its path in the workspace. */
async function save(file: File, link: Link | undefined): Promise<string> {
  const size = (file.size / 1024 / 1024).toLocaleString(undefined, { maximumFractionDigits: 1 });
  if (file.size > MOST) {
    throw new Error(
      trans.__(
        '%1 has %2 MiB, and files of up to 20 MiB are taken: copy it into the workspace and write its path.',
        file.name,
        size
      )
    );
  }
  const bytes = await read(file);
  const key = UUID.uuid4();
  for (let start = 0; start === 0 || start < bytes.length; start += PART) {
    const data = encode(bytes.subarray(start, start + PART));
    const last = start + PART >= bytes.length;
    const answer = await link?.ask('paste', { key, name: file.name, start, data, last }, LIMIT);
    if (!answer) {
      throw new Error(
        trans.__(
          '%1 was not saved, since agent_magics is not loaded in this kernel: run the cell with %load_ext agent_magics first.',
          file.name
        )
      );
    }
    if (answer.refused !== undefined) {
      throw new Error(String(answer.refused));
    }
    if (last) {
      return String(answer.path);
    }
  }
  throw new Error(trans.__('%1 was not saved.', file.name));
}

async function read(file: File): Promise<Uint8Array> {
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new Error(
      trans.__('%1 is a folder or cannot be read; drop the files that are in it.', file.name)
    );
  }
}

function encode(bytes: Uint8Array): string {
  let text = '';
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}

function tell(message: string): void {
  Notification.emit(message, 'warning', { autoClose: false });
}
