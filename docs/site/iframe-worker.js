// The search runs in a worker. Where a page is opened as a file browsers start none: there a hidden frame of the page stands in for it.
"use strict";

if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    #inside;
    #ready;

    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.#inside = frame.contentWindow;
      this.#inside.postMessage = (data) => this.#tell(data);
      this.#inside.importScripts = (...urls) => this.#load(urls);
      this.#ready = this.#load([url]);
    }

    postMessage(data) {
      this.#ready.then(() => this.#inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.#inside.frameElement.remove();
    }

    #tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    async #load(urls) {
      for (const url of urls) {
        await new Promise((loaded, failed) => {
          const script = this.#inside.document.createElement("script");
          script.src = new URL(url, document.baseURI);
          script.onload = loaded;
          script.onerror = failed;
          this.#inside.document.body.append(script);
        });
      }
    }
  };
  window.Worker = window.IFrameWorker;
}
