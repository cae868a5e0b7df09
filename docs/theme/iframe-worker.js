/* Pages opened as files may not start a web worker. The search is then given a hidden frame that acts as one. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: done, onerror: failed });
          inside.document.body.appendChild(script);
        });
      inside.importScripts = (...sources) => sources.reduce((last, each) => last.then(() => load(each)), Promise.resolve());
      this.give = inside.dispatchEvent.bind(inside);
      this.waiting = load(url);
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.made = (data) => new inside.MessageEvent("message", { data });
    }

    postMessage(data) {
      this.waiting.then(() => this.give(this.made(data)));
    }

    terminate() {}
  };
}
