// Draws each chart of the page from its description, in place of its pictures; and filters tables as somebody types.
const draw = async (figure) => {
  const description = JSON.parse(figure.querySelector("script").textContent);
  const live = figure.querySelector(".live");
  const sized = () => {
    const width = Math.max(figure.clientWidth - 56, 200);
    return { ...description, vconcat: description.vconcat.map((panel) => ({ ...panel, width })) };
  };
  const show = async () => {
    const shown = await vegaEmbed(live, sized(), { mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: { theme: "page" } });
    live.view = shown.view;
    figure.classList.add("drawn");
  };
  await show();
  let width = figure.clientWidth;
  new ResizeObserver(() => {
    if (figure.clientWidth !== width) {
      width = figure.clientWidth;
      show();
    }
  }).observe(figure);
};
for (const figure of document.querySelectorAll("figure.chart")) draw(figure).catch((error) => console.error(error));

for (const search of document.querySelectorAll("[data-search]")) {
  const rows = [...document.getElementById(search.dataset.search).tBodies[0].rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const found = search.parentElement.querySelector("output");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    let shown = 0;
    rows.forEach((row, number) => {
      row.hidden = !words.every((word) => texts[number].includes(word));
      shown += !row.hidden;
    });
    found.textContent = `${shown} of ${rows.length} shown`;
  };
  search.closest(".search").hidden = false;
  search.addEventListener("input", filter);
  filter();
}
