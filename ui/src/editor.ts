// The query box: CodeMirror with PromQL's grammar and completion.

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, insertNewlineAndIndent } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { PromQLExtension } from "@prometheus-io/codemirror-promql";
import { CompletionClient } from "./completion.ts";
import { element } from "./dom.ts";

const LOOK = EditorView.theme({
  "&": { fontSize: "15px", color: "var(--ink)", background: "transparent" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", maxHeight: "40vh" },
  ".cm-content": { padding: "10px 4px", caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-placeholder": { color: "var(--muted)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground, ::selection": {
    background: "var(--selection)",
  },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { background: "var(--selection)" },
  ".cm-tooltip": {
    background: "var(--surface)",
    color: "var(--ink)",
    border: "1px solid var(--line)",
    borderRadius: "8px",
    boxShadow: "var(--shadow)",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {
    fontFamily: "var(--mono)",
    fontSize: "13px",
    maxHeight: "18em",
    maxWidth: "min(720px, calc(100vw - 32px))",
    minWidth: "min(260px, calc(100vw - 32px))",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "4px 10px", lineHeight: "1.4" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionDetail": { fontStyle: "normal", opacity: "0.75" },
  ".cm-completionIcon": { display: "none" },
  ".cm-tooltip.cm-completionInfo": { padding: "8px 12px", maxWidth: "320px", fontFamily: "var(--sans)", fontSize: "13px" },
  // On a phone it would cover the list.
  "@media (max-width: 640px)": { ".cm-tooltip.cm-completionInfo": { display: "none" } },
  ".cm-diagnostic": { padding: "6px 10px", fontFamily: "var(--mono)", fontSize: "13px" },
});

const COLOURS = HighlightStyle.define([
  { tag: [tags.function(tags.variableName), tags.standard(tags.variableName)], color: "var(--code-function)" },
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.number, tags.string], color: "var(--code-literal)" },
  { tag: tags.labelName, color: "var(--code-label)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

export class QueryEditor {
  readonly root = element("div", { class: "editor" });
  private readonly view: EditorView;

  /** `run` is called on Enter; Shift-Enter begins a new line. */
  constructor(run: () => void) {
    // In a shadow tree CodeMirror adopts its style sheets; in the document it would write <style> elements, which
    // the server's Content-Security-Policy forbids.
    const shadow = this.root.attachShadow({ mode: "open" });
    const promql = new PromQLExtension().setComplete({ remote: new CompletionClient() });
    this.view = new EditorView({
      root: shadow,
      state: EditorState.create({
        extensions: [
          // Below the completion's own Enter, which takes the chosen name.
          autocompletion({ icons: false, maxRenderedOptions: 60, activateOnTypingDelay: 60, defaultKeymap: false }),
          Prec.highest(keymap.of(completionKeymap)),
          Prec.high(
            keymap.of([
              { key: "Enter", run: () => (run(), true), shift: insertNewlineAndIndent },
              { key: "Mod-Enter", run: () => (run(), true) },
            ]),
          ),
          keymap.of([...closeBracketsKeymap, ...historyKeymap, ...defaultKeymap]),
          history(),
          closeBrackets(),
          bracketMatching(),
          promql.asExtension(),
          syntaxHighlighting(COLOURS),
          LOOK,
          EditorView.lineWrapping,
          placeholder("PromQL, such as rate(node_cpu_seconds_total[1m])"),
          EditorView.contentAttributes.of({ "aria-label": "PromQL query", autocapitalize: "off", spellcheck: "false" }),
        ],
      }),
    });
    shadow.append(this.view.dom);
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  set text(text: string) {
    if (text === this.text) return;
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text }, selection: { anchor: text.length } });
  }

  focus(): void {
    this.view.focus();
  }

  destroy(): void {
    this.view.destroy();
  }
}
