/** Letters that look like Latin ones, marked as in text/look_alikes.py, whose tests compare both. */

// Pairs: letters, and the Latin letters that they look like.
const LOOK_ALIKES = new RegExp(
  '[асеорхуіјѕһԁԛԝѵӏкмтнвпгАВЕКМНОРСТХУІЈЅԚԜѴӀαεικνορτυχγηϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹͿօսոհցզյ' +
    'ᎪᏴᏟᎠᎬᎻᎫᏦᏞᎷᏢᎡᏚᎢᏙᎳᎩᏃꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜɑɡⲟⲣⲥ]',
  'u'
);
const WORD = /[\p{L}\p{Nl}\p{No}]+/gu;
const MAY_DECEIVE = /(?![a-zA-Z])[\p{L}\p{Nl}\p{No}]/u;
/** Ligatures, digraphs and subscripts, which Unicode calls Latin letters. */
const OWN_SHAPES = /[ĲĳſǇ-ǌǱ-ǳᵢ-ᵥₐₑₒₓₕ-ₜⱼﬀ-ﬆ]/u;
const ALPHABETS = {
  latin: /(?![\p{Lm}ℲⅎÅ])\p{Script=Latin}|[ᵢ-ᵥₐ-ₜⱼ]/u,
  greek: /(?![\p{Lm}Ω])\p{Script=Greek}|ʹ/u,
  cyrillic: /(?!\p{Lm})\p{Script=Cyrillic}|[\uA67F\u{1E051}-\u{1E06A}]/u,
  armenian: /\p{Script=Armenian}/u,
  cherokee: /\p{Script=Cherokee}/u,
  lisu: /\p{Script=Lisu}/u,
  coptic: /\p{Script=Coptic}|[\u{102E1}-\u{102FB}]/u
};
/** Alphabets whose letters nobody mixes with Latin ones in a word. */
const APART = ['cyrillic', 'armenian', 'cherokee', 'lisu', 'coptic'];

/** Put its code behind each letter that may pass for a Latin one, such as `а⟨U+0430⟩`, once. */
export function markLookAlikes(text: string): string {
  if (!MAY_DECEIVE.test(text)) {
    return text;
  }
  const letters = [...new Set(text)].filter(letter => /\p{L}/u.test(letter) && !isLookAlike(letter));
  const clear = new Set(letters.map(alphabetOf));
  return text.replace(WORD, (word, at: number) => {
    const letters = [...word];
    const shown = marked(letters, clear);
    const code = written(letters[letters.length - 1]!);
    const isMarked = shown.endsWith(code) && text.startsWith(code, at + word.length);
    return isMarked ? shown.slice(0, -code.length) : shown;
  });
}

function marked(word: string[], clear: Set<string>): string {
  const alphabets = word.map(alphabetOf);
  if (!alphabets.includes('latin')) {
    const isPlain = word.length < 2 || !word.every(isLookAlike);
    if (isPlain || alphabets.some(each => clear.has(each))) {
      return word.join('');
    }
  }
  const mayPass = (letter: string): boolean =>
    isLookAlike(letter) || APART.includes(alphabetOf(letter));
  return word.map(letter => (mayPass(letter) ? letter + written(letter) : letter)).join('');
}

function isLookAlike(letter: string): boolean {
  return LOOK_ALIKES.test(letter) || isShaped(letter);
}

/** Whether it is a plain letter in another shape, such as a full-width or bold one. */
function isShaped(letter: string): boolean {
  return letter > 'z' && !OWN_SHAPES.test(letter) && /^[a-zA-Z]+$/.test(letter.normalize('NFKC'));
}

function alphabetOf(letter: string): string {
  const found = Object.entries(ALPHABETS).find(([, letters]) => letters.test(letter));
  return isShaped(letter) ? 'shaped' : (found?.[0] ?? '');
}

/** The code of a character as it is written out, such as ⟨U+202E⟩. */
export function written(character: string): string {
  return `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}⟩`;
}
